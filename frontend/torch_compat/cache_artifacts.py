"""PyTorch's registry of what torch.compiler.save_cache_artifacts() takes along."""

from collections.abc import Callable

from mlirc.codegen.abi.reach import Missing, reach


@reach("cache-artifacts", instead="torch.compiler.save_cache_artifacts() has nothing of mlirc's")
def registry() -> Callable[[str, Callable[[str, bytes], None]], Callable[[str, bytes], None]]:
    """register(name, take): registers a type of artifacts. `take` gets the key and bytes of a loaded one. Returns the function that
    records one, by its key and bytes."""
    from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

    if not callable(getattr(CacheArtifactManager, "record_artifact", None)):
        raise Missing("artifacts are not recorded")

    def register(name: str, take: Callable[[str, bytes], None]) -> Callable[[str, bytes], None]:
        class EntryArtifact(CacheArtifact):
            def populate_cache(self) -> None:
                take(self.key, self.content)

            @staticmethod
            def type() -> str:
                return name

        if name not in CacheArtifactFactory._artifact_types:  # a test may have imported this module twice
            CacheArtifactFactory.register(EntryArtifact)
        return lambda key, content: CacheArtifactManager.record_artifact(name, key, content)

    return register
