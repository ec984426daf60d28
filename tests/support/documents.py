"""Files of documents in all formats, and what is read from them."""

import csv
import gzip
import io
import json
import tarfile

import tokjax


def write_texts(path, texts, separator="<|endoftext|>", *, field="text", group_size=1000):
    """Writes texts in the format that a path names. The size of the file is that of the texts.

    Args:
        path: path of the file. Names that end in `.gz` are compressed.
        texts: the texts.
        separator: text between documents of plain text.
        field: name of the text in records, which also have their number, `n`.
        group_size: number of rows of each group in tables.

    Returns:
        The path.
    """
    name, records = path.name.removesuffix(".gz"), [{"n": i, field: text} for i, text in enumerate(texts)]
    lines = [json.dumps(record) for record in records]
    if name.endswith((".parquet", ".arrow")):
        write_table(path, {"n": range(len(texts)), field: texts}, group_size)
    elif name.endswith(".tar"):
        with tarfile.open(path, "w") as archive:
            for i, line in enumerate(lines):
                member = tarfile.TarInfo(f"{i:04}.json")
                member.size = len(line)
                archive.addfile(member, io.BytesIO(line.encode()))
    else:
        contents = separator.join(texts)
        if name.endswith(".jsonl"):
            contents = "".join(f"{line}\n" for line in lines)
        elif name.endswith(".csv"):
            table = io.StringIO(newline="")
            csv.writer(table).writerows([["n", field], *enumerate(texts)])
            contents = table.getvalue()
        data = contents.encode()
        path.write_bytes(gzip.compress(data, compresslevel=0, mtime=0) if path.suffix == ".gz" else data)
    return path


def write_table(path, columns, group_size):
    """Writes columns as a Parquet or Arrow file."""
    import pyarrow as pa
    from pyarrow import parquet

    arrays = {
        name: pa.array(values, pa.int64() if name == "n" else pa.string()) for name, values in columns.items()
    }
    table = pa.table(arrays)
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=group_size, compression="none")
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=group_size)


def read_bytes_of_documents(source, separator=None):
    """Returns the documents of a source as bytes, which all kinds of sources have in common."""
    return list(map(tokjax.offsets.to_utf8, tokjax.corpus.read_documents(source, separator)))
