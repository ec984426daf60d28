"""Names that suites write into records and tables look up. Changing one makes old records unreadable."""

OURS, THEIRS = "tokjax, ids", "tiktoken, ids"
IDS, OFFSETS = "ids", "ids with offsets and masks"
UNREAD = "ids with offsets and masks that are not read"
SLOW = "Hugging Face, slow"
ENCODING, TRAINING = "encoding", "training"
OTHER_IDS = "other ids"

ROOFLINE = "sequential roofline"
FAR_INDEX = 10**9
FIRST_STEP, FAR_STEP = "step 1", f"step {FAR_INDEX:,}"
FRESH_LOADER = "a fresh loader"
OPENING = "from opening to the first batch"
CHECKED, UNCHECKED = "with checksums", "without"
WRITING = "writing"
WINDOWS = "windows of planned rows"

FULLEST_PLAN = "fullest plan"

BANDWIDTH = "memory bandwidth"
OWN, COPY, MEMCPY = "tokjax", "copy, jitted", "memcpy"
OVERLAP = "overlap"
ENCODING_JIT = "encoding under jit"
ENCODE_JIT, DECODE_JIT, TIKTOKEN, TRANSFER = "encode_jit", "decode_jit", "tiktoken", "transfer"
STEP, LOADING, BOTH = "step alone", "loading alone", "both, prefetched"

CURVES = (
    "encoding by size of text",
    "encoding by size of vocabulary",
    "encoding by number of documents",
    "encoding by unique pre-tokens",
    "encoding by threads",
    "training by size of text",
    "training by size of vocabulary",
    "training by unique pre-tokens",
    "packing by number of documents",
)


def format_run_name(contender: str, threads: int) -> str:
    """Returns the name of a contender that runs on a number of threads."""
    return f"{contender}; {threads}"
