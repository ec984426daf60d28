"""Vocabulary and dataset from a Dask cluster, byte for byte equal to those from one process.

    pip install '.[examples]' distributed && python examples/dask_corpus.py

The cluster is two processes on this machine. To use another cluster, replace it with
`Client("tcp://host:8786")`. Its workers need the corpus under the same path: each worker reads its part of
the file itself. The corpus is the source code of the standard library and of the installed packages, in one
file, or the files of `--corpus`.
"""

import sys
import sysconfig
import time
from collections import Counter
from pathlib import Path

import typer
from corpus import SEPARATOR, count_nbytes, find_standard_library, shuffle_paths
from distributed import Client, LocalCluster, get_task_stream

import tokjax
from tokjax.trainer import count_pretokens, train_bpe


def write_corpus(directory, megabytes):
    """Writes at least that much installed source code to one file, and returns its path."""
    packages = Path(sysconfig.get_path("purelib"))
    path, remaining = directory / "corpus.txt", count_nbytes(megabytes)
    with path.open("wb") as corpus:
        for source in (*find_standard_library(), *shuffle_paths(packages.rglob("*.py"), packages)):
            text = source.read_bytes() + SEPARATOR.encode()
            remaining -= corpus.write(text)
            if remaining <= 0:
                break
    return path


def make_dataset(corpus, directory, vocab_size, **execution):
    """Trains the tokenizer and writes the dataset of a corpus; returns the seconds.

    `execution` has the options `executor` and `workers`; without them all work is done in this process.
    """
    begin = time.perf_counter()
    counts = count_pretokens(corpus, special_tokens=[SEPARATOR], pattern="cl100k", **execution)
    tokenizer = train_bpe(counts, vocab_size=vocab_size).tokenizer
    tokjax.save_tokenizer(tokenizer, directory / "bpe.json")
    field, dataset_path = tokjax.PackedTokenField(tokenizer), directory / "dataset"
    options = {"separator": SEPARATOR, "shard_size": 4_000_000, "progress": True, "overwrite": True}
    tokjax.write_dataset(corpus, field, dataset_path, **options, **execution)
    return time.perf_counter() - begin


def make_dataset_on_cluster(corpus, directory, vocab_size, workers):
    """Calls `make_dataset` with the workers of a cluster, and prints the seconds and the number of tasks."""
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
        get_task_stream(client) as tasks,
    ):
        seconds = make_dataset(corpus, directory, vocab_size, executor=client.get_executor(), workers=workers)
    counts = Counter(task["worker"] for task in tasks.data)
    print(f"on the cluster: {seconds:.1f} s, {counts.total()} tasks on {len(counts)} workers")


def read_files(directory):
    """Returns the contents of all files of a directory, by relative path."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def main(
    corpus: list[Path] = typer.Option([], help="text file; repeat the option for several files"),
    directory: Path = Path("runs/dask_corpus"),
    megabytes: float = typer.Option(64, help="amount of source code, in MB"),
    vocab_size: int = 8192,
    workers: int = typer.Option(2, min=1, help="number of processes of the cluster"),
):
    on_cluster, local = directory / "cluster", directory / "local"
    for path in (on_cluster, local):
        path.mkdir(parents=True, exist_ok=True)
    files = corpus or [write_corpus(directory, megabytes)]
    make_dataset_on_cluster(files, on_cluster, vocab_size, workers)
    print(f"in one process: {make_dataset(files, local, vocab_size):.1f} s")
    print(tokjax.open_dataset(on_cluster / "dataset"))
    actual, expected = read_files(on_cluster), read_files(local)
    different = [name for name in sorted({*actual, *expected}) if actual.get(name) != expected.get(name)]
    if different:
        sys.exit(f"error: different from those of one process: {', '.join(different)}")
    print(f"all {len(actual)} files of the cluster are byte for byte equal to those of one process")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
