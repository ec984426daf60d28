"""A vocabulary and a dataset made on a Dask cluster: byte for byte what one process makes.

    pip install '.[examples]' distributed && python examples/dask_corpus.py

The cluster is two processes of this machine; of another, `Client("tcp://host:8786")` is all that changes. If
its workers see the corpus under the same path, each reads what it counts. The corpus is the source code of
the standard library and of the packages that are installed, in one file, or the files of `--corpus`.
"""

import sys
import sysconfig
import time
from collections import Counter
from pathlib import Path

import dask
import typer
from corpus import SEPARATOR, count_nbytes, find_standard_library, shuffle_paths
from distributed import Client, LocalCluster, get_task_stream

import tokjax
from tokjax.trainer import count_pretokens, train_bpe

# Texts that are encoded travel to the workers, 16 MiB at a time, of which Dask would warn.
dask.config.set({"distributed.admin.large-graph-warning-threshold": "64MiB"})


def write_corpus(directory, megabytes):
    """So much of the source code that is installed, to the end of a file, in one file."""
    packages = Path(sysconfig.get_path("purelib"))
    path, left = directory / "corpus.txt", count_nbytes(megabytes)
    with path.open("wb") as corpus:
        for source in (*find_standard_library(), *shuffle_paths(packages.rglob("*.py"), packages)):
            text = source.read_bytes() + SEPARATOR.encode()
            left -= corpus.write(text)
            if left <= 0:
                break
    return path


def make_dataset(corpus, directory, vocab_size, **where):
    """Write the tokenizer and the dataset of a corpus; how many seconds that takes."""
    begin = time.perf_counter()
    counts = count_pretokens(corpus, special_tokens=[SEPARATOR], pattern="cl100k", **where)
    tokenizer = train_bpe(counts, vocab_size=vocab_size).tokenizer
    tokjax.save_tokenizer(tokenizer, directory / "tokenizer.json")
    field, dataset_path = tokjax.PackedTokenField(tokenizer), directory / "dataset"
    options = {"separator": SEPARATOR, "shard_size": 4_000_000, "progress": True, "overwrite": True}
    tokjax.write_dataset(corpus, field, dataset_path, **options, **where)
    return time.perf_counter() - begin


def make_dataset_on_cluster(corpus, directory, vocab_size, workers):
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
        get_task_stream(client) as tasks,
    ):
        seconds = make_dataset(corpus, directory, vocab_size, executor=client.get_executor(), workers=workers)
    shares = Counter(task["worker"] for task in tasks.data)
    print(f"on the cluster: {seconds:.1f} s, {shares.total()} tasks of {len(shares)} workers")


def find_files(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def main(
    corpus: list[Path] = typer.Option([], help="a text file, or several: the option again for each"),
    directory: Path = Path("runs/dask_corpus"),
    megabytes: float = typer.Option(64, help="how much source code"),
    vocab_size: int = 8192,
    workers: int = typer.Option(2, min=1, help="processes of the cluster"),
):
    present, here = directory / "cluster", directory / "one process"
    for dataset_path in (present, here):
        dataset_path.mkdir(parents=True, exist_ok=True)
    files = corpus or [write_corpus(directory, megabytes)]
    make_dataset_on_cluster(files, present, vocab_size, workers)
    print(f"in one process: {make_dataset(files, here, vocab_size):.1f} s")
    print(tokjax.open_dataset(present / "dataset"))
    made, expected = find_files(present), find_files(here)
    differ = [name for name in sorted({*made, *expected}) if made.get(name) != expected.get(name)]
    if differ:
        sys.exit(f"error: not as in one process: {', '.join(differ)}")
    print(f"all {len(made)} files that the cluster made are byte for byte those of one process")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
