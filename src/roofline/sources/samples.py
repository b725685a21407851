"""Samples: real inputs that come with the package, read under ``sample:NAME`` so that everything can be tried without a device."""

from pathlib import Path

from ..errors import SourceError, did_you_mean

SAMPLE = "sample:"  # the prefix of a sample's name
FOLDER = Path(__file__).parent.parent / "samples"
SAMPLES = {
    "train": "train_h200.xplane.pb.gz",  # six steps of training a transformer with JAX on an H200, as jax.profiler wrote them
    "counters": "gpt_training_h200.csv",  # the kernels of a training step with PyTorch on an H200, by Nsight Compute
}


def sample(name: str) -> Path:
    """The file of a sample, named with or without its prefix.

    >>> sample("sample:train").name
    'train_h200.xplane.pb.gz'
    """
    word = name.removeprefix(SAMPLE)
    known = SAMPLES.get(word)
    if known is None:
        raise SourceError(f"no sample named {word!r}{did_you_mean(word, SAMPLES) or '; known: ' + ', '.join(SAMPLES)}")
    return FOLDER / known


def is_sample(name: str) -> bool:
    """Whether a name is a sample's."""
    return name.startswith(SAMPLE)


def sample_or_path(name: str) -> Path:
    """The file of a sample, or the path itself."""
    return sample(name) if is_sample(name) else Path(name)
