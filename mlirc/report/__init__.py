"""`mlirc report`: what a capture kept as data, and one page of HTML that shows it. report_data.py, html_page.py."""
