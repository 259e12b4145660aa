"""What random programs do not do, and why: eager itself defines no answer there. Each name says where it is kept."""

EXCLUSIONS = {
    "empty and its like": "uninitialised memory; no generator writes them",
    "circular pads of more than is left of a dimension": "F.pad(x, (1, -1), mode='circular') of one column copies uninitialised memory "
    "in eager (kinds/layers.py)",
    "random operators": "drawn by generators of seeds of their own; tests of random numbers hold them; dropout has p = 0",
    "integers divided by zero": "the processor's trap; kinds/elementwise.py divides by nonzero numbers",
    "floats out of range to integers": "the processor's choice, which differs between eager's own scalar and vector code; the casts' own tests "
    "hold those that eager defines (kinds/elementwise.py)",
    "positions of equal elements": "topk, kthvalue, median, mode and unstable sorts give any of them; only values are shown (kinds/rows.py)",
    "positions written twice": "without accumulation, index_put and scatter keep any; one number or a permutation (kinds/indexing.py)",
    "overlapping writes": "in place of a tensor whose elements share memory; eager raises for some of them, is wrong in others (mutation.overlaps)",
    "decompositions of matrices that are not finite, and signs of their vectors": "LAPACK's choice (kinds/linalg.py)",
    "order statistics of expanded tensors": "eager's median and kthvalue read beyond a tensor whose strides are 0 (kinds/rows.py)",
    "float32 products of reduced precision": "eager's get less exact where the processor has bfloat16 products, ours do not (changes.py)",
    "copies between overlapping views": "eager copies element by element, in an order that is not defined (mutation.source)",
    "Python integers beyond 64 bits": "eager's own conversions raise in other places than Dynamo's (scalars._safe)",
    "what an attention mask hides where it is not finite": "eager's kernels add -inf, its causal kernel replaces (judge.ReplacedScores)",
    "a module's dtype changed after a call, on torch 2.11": "its Dynamo misses it, and a dtype that the graph has as a constant stays "
    "(drive.py; torch_compat/dynamo/skipped_guards.py)",
    "derivatives of rms_norm within torch.func, on torch 2.11": "0 in inference_mode, without a warning (kinds/derivatives.py)",
    "attention with a scale of 0 or less": "eager masks before it scales: -inf becomes NaN or the largest (kinds/layers.py)",
    "signs of zeros out of sums of products, least squares, and of the larger of -0.0 and 0.0": "the library's choice (noise.SIGNLESS)",
    "largest numbers in sums, norms and products": "whether a square or a sum overflows on the way is a formula's choice: eager's "
    "own layer_norm differs between float32 and float64 there (program.OF_EXTREMES)",
    "clipped gradients of a half type before a norm": "nearly cancel, so that rounding alone decides whether they are clipped and what "
    "their norm scales all others by: by 13 in eager, 3 in ours, 25 in float64 (steps.py)",
    "a tensor of inference mode whose data is set to another's": "eager refuses its views: it is no tensor of that mode, and has no count of "
    "writes (changes.py)",
    "bits of NaN": "no operation defines them; compare.py takes all NaN for one, and noise.py draws their bits (log2 of -1 is a positive "
    "NaN in eager's vectors, a negative one by the processor's own; its maximum of two vectors has all bits set)",
    "bits of rounded numbers as numbers of another dtype": "any number, and NaN (kinds/elementwise.py views them as integers)",
    "logarithms of sums near 1": "have the sum's rounding, of 1, not of the result (noise.LOGARITHMS_OF_SUMS)",
    "signs of zeros that rounding made": "a zero that is another small number in a run with other last bits has that one's sign (compare.py)",
    "special values that eager has two of": "another in vectors than in the rest of a row (gelu of inf is NaN and inf); both will do "
    "(noise.again; test_noise.py has those that are known)",
    "sums and products of rows": "in some order: 1e-30 * 1e-30 * inf is NaN or inf (noise.in_another_order)",
    "what leaves a half type's range between two operations": "kept: x.half() * 1e-9 * 1e9 is x (docs/decisions.md; noise.wider)",
    "elements that are the mean, in norms": "0, or what rounding leaves of it, which is true as a bool (noise.layer_norm)",
    "signs of zeros out of gradients of softmax and group norm": "noise.SIGNLESS; docs/decisions.md",
    "means of var_mean and std_mean of infinities on a GPU": "eager's is NaN where a thread has another element after an infinity, ours the sum's "
    "(noise.VARIANCES)",
    "batch norms of vectors": "PyTorch reads a second size that is not there, traced with symbols: another answer each time, or a crash "
    "(kinds/rows.py)",
    "hardsigmoid and hardswish of float64 on a GPU": "eager's kernels there have 1/6 as a float32 (noise.SIXTHS)",
    "rms_norm of infinities on a GPU": "eager's kernel gives NaN for the whole row, or for 4 * n elements 0 beside them (noise.root_mean_square)",
    "signs of zeros out of cumsum and layer norm on a GPU": "eager's scan of a vector begins with -0.0, that of rows with 0.0; its layer norm "
    "adds 0.0 where rows are no multiple of 4 elements (noise.run)",
    "what takes PyTorch itself too long": "a split into 100,000 parts; aot_eager ends it no sooner (workers.aot_eager_hangs)",
    "activations that are written to behind a graph break": "eager's backward refuses them; AOTAutograd sees some of the writes (judge.py)",
    "strides of dimensions of size 1, strides and offsets of empty tensors": "PyTorch's own is_contiguous ignores them (observe.py)",
}
