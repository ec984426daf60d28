from .annotated_text import (
    AnnotatedText as AnnotatedText,
    read_annotations as read_annotations,
    read_conll as read_conll,
)
from .chunk_boundaries import (
    find_chunk_boundaries as find_chunk_boundaries,
)
from .files import (
    TextFiles as TextFiles,
    text_files as text_files,
)
from .sources import (
    read_documents as read_documents,
)
