#!/usr/bin/env python3
"""Writes the Parquet files of tests/data/parquet_files with pyarrow; tests/data/parquet_rows_test.cpp says what is in them.

    $(scripts/peer_environment) scripts/make_parquet_files.py        Needs: pip install pyarrow==26.0.1
"""
import decimal
import os

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "data", "parquet_files")


def write(name, table, **options):
    pq.write_table(table, os.path.join(FOLDER, name), **options)


# A column of each type; a value, another, and a null.
NAN = float("nan")
TYPES = {
    "bool": (pa.bool_(), [True, False, None]),
    "int8": (pa.int8(), [-128, 127, None]),
    "int16": (pa.int16(), [-32768, 32767, None]),
    "int32": (pa.int32(), [-2**31, 2**31 - 1, None]),
    "int64": (pa.int64(), [-2**63, 2**63 - 1, None]),
    "uint8": (pa.uint8(), [0, 255, None]),
    "uint16": (pa.uint16(), [0, 2**16 - 1, None]),
    "uint32": (pa.uint32(), [0, 2**32 - 1, None]),
    "uint64": (pa.uint64(), [0, 2**64 - 1, None]),
    "half": (pa.float16(), [1.5, -2.0, NAN]),
    "float": (pa.float32(), [0.5, 1e20, NAN]),
    "double": (pa.float64(), [0.1, -3.0, float("inf")]),
    "string": (pa.string(), ["", "a\"\\\n\r\t\x00\x1f\u00e9\U0001f600", None]),
    "large_string": (pa.large_string(), ["x", "\u2028", None]),
    "string_view": (pa.string_view(), ["short", "longer than twelve bytes", None]),
    "binary": (pa.binary(), [b"bytes", b"\xc3\xa9", None]),
    "fixed": (pa.binary(2), [b"ab", b"cd", None]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["yes", "no", None]),
    "null": (pa.null(), [None, None, None]),
    "list": (pa.list_(pa.int64()), [[], [1, None, 3], None]),
    "large_list": (pa.large_list(pa.string()), [["a"], ["b", "c"], None]),
    "fixed_list": (pa.list_(pa.int32(), 2), [[1, 2], [3, 4], None]),
    "lists": (pa.list_(pa.list_(pa.bool_())), [[[True], []], [None, [False, None]], None]),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.string())]), [{"a": 1, "b": "x"}, {"a": None, "b": None}, None]),
    "structs": (pa.list_(pa.struct([("k", pa.string()), ("v", pa.list_(pa.float64()))])),
                [[{"k": "p", "v": [0.25]}, {"k": None, "v": None}], [None], None]),
    "map": (pa.map_(pa.string(), pa.int32()), [[("one", 1), ("none", None)], [], None]),
    "number_map": (pa.map_(pa.int32(), pa.bool_()), [[(7, True)], [], None]),
    "json": (pa.json_(), ['{"a": [1,\n2]}', "not JSON", None]),
    "time": (pa.timestamp("ms"), [0, 86399000, None]),
    "date": (pa.date32(), [0, 365, None]),
    "decimal": (pa.decimal128(5, 2), [decimal.Decimal("1.50"), decimal.Decimal("-0.01"), None]),
}
write("types.parquet", pa.table({name: pa.array(values, kind) for name, (kind, values) in TYPES.items()}), row_group_size=2)

ROLES = pa.struct([("role", pa.string()), ("content", pa.string()), ("weight", pa.int64())])
CHATS = [[("user", "ab", None), ("assistant", "cd", None)], [("user", "e", None), ("assistant", "f", 0), ("user", "g", None), ("assistant", "hi", 1)],
         [("user", "jk", None), (None, "lm", None)], [("user", "a", None), ("assistant", "b", None)], None]
messages = [rows and [dict(zip(("role", "content", "weight"), row)) for row in rows] for rows in CHATS]
chats = pa.table({"id": pa.array(range(5), pa.int64()), "messages": pa.array(messages, pa.list_(ROLES))})
write("chats.parquet", chats, row_group_size=2, compression="zstd")

TEXTS = pa.table({"text": ["ab", "cd", "ab", None, "efg"] * 8, "note": ["x"] * 40})
for codec in ("none", "snappy", "gzip", "brotli", "lz4", "zstd"):
    write("texts_%s.parquet" % codec, TEXTS, compression=codec, row_group_size=16)
# Pages with checksums, data pages of the second version, no dictionaries, several pages to a row group.
write("texts_pages.parquet", TEXTS, compression="none", use_dictionary=False, data_page_version="2.0", data_page_size=32, write_batch_size=8, write_page_checksum=True,
      column_encoding={"text": "DELTA_BYTE_ARRAY", "note": "DELTA_LENGTH_BYTE_ARRAY"})
write("bytes.parquet", pa.table({"text": pa.array([b"ab", b"a\xffb", b"cd"], pa.binary())}), compression="none")
write("no_rows.parquet", pa.table({"text": pa.array([], pa.string())}))
