#!/usr/bin/env python3
"""Make small GGUF models for trying llama.cpp's tools, byte for byte the same every time. Needs Python 3.9 and nothing else.

usage: gen_gguf.py [--check] [--out DIR]              the models of configs/models, or where DIR says; --check compares, exit 1 if one drifted
       gen_gguf.py --make NAME WIDTH LAYERS [--experts N USED] [--parts N] [--out DIR]
                                             one more with weights of Q8_0, for trials that want it slower, a mixture of experts, or several
                                             files, NAME-00001-of-0000N.gguf and so on

Each is of the architecture `llama` with a vocabulary of 384 tokens made here: control tokens, bytes, printable ASCII. Weights are
bytes of SHAKE-256 scaled by one number per tensor. Nothing is trained and nothing is downloaded, and what such a model says means nothing.
"""
import argparse
import hashlib
import math
import struct
import sys
from pathlib import Path

MODELS_DIR = Path(__file__).resolve().parent.parent / "configs" / "models"

# GGUF's numbers for kinds of values and tensors, as of its specification; a file's type is the kind of most of its tensors.
UINT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 2, 4, 5, 6, 7, 8, 9
F32, F16, Q8_0 = 0, 1, 8
FILE_TYPE = {F16: 1, Q8_0: 7}
ALIGNMENT = 32
# Weights of a block of Q8_0.
BLOCK = 32
# Tokens: three of control, 256 bytes, the space and 94 printable characters, and words that fill up to a multiple of 32.
FIRST_BYTE, FIRST_PRINTABLE, FIRST_FILLER, VOCABULARY = 3, 260, 354, 384


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(kind, value):
    return text(value) if kind == STRING else struct.pack({UINT16: "<H", UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def array(kind, values):
    return struct.pack("<IQ", kind, len(values)) + b"".join(scalar(kind, value) for value in values)


class Model:
    """A file under construction: facts, and tensors in order."""

    def __init__(self, seed, kind):
        self.seed, self.kind = seed, kind
        self.facts, self.tensors = [], []

    def fact(self, key, kind, value):
        self.facts.append(text(key) + struct.pack("<I", kind) + (value if kind == ARRAY else scalar(kind, value)))

    def norm(self, name, size):
        self.tensors.append((name, (size,), F32, struct.pack("<f", 1.0) * size))

    def router(self, name, experts, width):
        noise = hashlib.shake_256(f"{self.seed} {name}".encode()).digest(experts * width)
        self.tensors.append((name, (width, experts), F32, b"".join(struct.pack("<f", byte / 128 - 1) for byte in noise)))

    def matrix(self, name, rows, columns, silent=(), experts=()):
        """`silent`: ranges of rows that are zero; `experts`: how many of it there are, if it has a part for each."""
        # -128 has no counterpart above zero, and quantising never gives it.
        noise = hashlib.shake_256(f"{self.seed} {name}".encode()).digest(math.prod((rows, columns, *experts)))
        weights = bytearray(noise.replace(b"\x80", b"\x81"))
        for row in (row for rows in silent for row in rows):
            weights[row * columns:(row + 1) * columns] = bytes(columns)
        # As far apart as keeps the size of what flows through.
        step = math.sqrt(3 / columns) / 127
        if self.kind == F16:
            halves = [struct.pack("<e", step * (byte - 256 if byte > 127 else byte)) for byte in range(256)]
            data = b"".join(map(halves.__getitem__, weights))
        else:
            scale = struct.pack("<e", step)
            data = b"".join(scale + weights[at:at + BLOCK] for at in range(0, len(weights), BLOCK))
        self.tensors.append((name, (columns, rows, *experts), self.kind, data))

    def files(self, parts):
        """One after another: the first has all facts, and each says which it is."""
        each = math.ceil(len(self.tensors) / parts)
        for part in range(parts):
            model = Model(self.seed, self.kind)
            model.facts = list(self.facts) if part == 0 else []
            for key, kind, value in [("no", UINT16, part), ("count", UINT16, parts), ("tensors.count", INT32, len(self.tensors))]:
                model.fact(f"split.{key}", kind, value)
            model.tensors = self.tensors[part * each:(part + 1) * each]
            yield model.file()

    def file(self):
        infos, data = [], []
        offset = 0
        for name, shape, kind, bytes_ in self.tensors:
            infos.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset))
            padding = bytes(-len(bytes_) % ALIGNMENT)
            data += [bytes_, padding]
            offset += len(bytes_) + len(padding)
        head = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.facts)) + b"".join(self.facts + infos)
        return head + bytes(-len(head) % ALIGNMENT) + b"".join(data)


def llama(name, seed, kind, width, layers, heads, kv_heads, feed_forward, context, experts=()):
    """`experts`: how many, and how many of them a token needs; none for a model without."""
    model = Model(seed, kind)
    for key, fact_kind, value in [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, name),
        ("general.file_type", UINT32, FILE_TYPE[kind]),
        ("general.quantization_version", UINT32, 2),
        ("llama.context_length", UINT32, context),
        ("llama.embedding_length", UINT32, width),
        ("llama.block_count", UINT32, layers),
        ("llama.feed_forward_length", UINT32, feed_forward),
        ("llama.attention.head_count", UINT32, heads),
        ("llama.attention.head_count_kv", UINT32, kv_heads),
        ("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        ("llama.rope.dimension_count", UINT32, width // heads),
        ("llama.vocab_size", UINT32, VOCABULARY),
        ("tokenizer.ggml.model", STRING, "llama"),
        ("tokenizer.ggml.pre", STRING, "default"),
    ]:
        model.fact(key, fact_kind, value)
    for key, value in zip(["expert_count", "expert_used_count"], experts):
        model.fact(f"llama.{key}", UINT32, value)
    control, byte, normal = 3, 6, 1
    tokens = [("<unk>", 2, 0.0), ("<s>", control, 0.0), ("</s>", control, 0.0)]
    tokens += [(f"<0x{value:02X}>", byte, 0.0) for value in range(256)]
    tokens += [(character, normal, -10.0) for character in ["\u2581", *map(chr, range(33, 127))]]
    tokens += [(f"\u2581w{n}", normal, -20.0 - n) for n in range(VOCABULARY - len(tokens))]
    model.fact("tokenizer.ggml.tokens", ARRAY, array(STRING, [token for token, _, _ in tokens]))
    model.fact("tokenizer.ggml.scores", ARRAY, array(FLOAT32, [score for _, _, score in tokens]))
    model.fact("tokenizer.ggml.token_type", ARRAY, array(INT32, [kind for _, kind, _ in tokens]))
    for key, value in [("bos", 1), ("eos", 2), ("unknown", 0)]:
        model.fact(f"tokenizer.ggml.{key}_token_id", UINT32, value)
    model.fact("tokenizer.ggml.add_bos_token", BOOL, True)

    kv_width = width // heads * kv_heads
    model.matrix("token_embd.weight", VOCABULARY, width)
    model.norm("output_norm.weight", width)
    # The likeliest token is always one printable character: one token is one event of a stream.
    model.matrix("output.weight", VOCABULARY, width, silent=[range(FIRST_PRINTABLE), range(FIRST_FILLER, VOCABULARY)])
    for layer in range(layers):
        block = f"blk.{layer}."
        model.norm(block + "attn_norm.weight", width)
        for part, rows, columns in [("q", width, width), ("k", kv_width, width), ("v", kv_width, width), ("output", width, width)]:
            model.matrix(f"{block}attn_{part}.weight", rows, columns)
        model.norm(block + "ffn_norm.weight", width)
        for part, rows, columns in [("gate", feed_forward, width), ("up", feed_forward, width), ("down", width, feed_forward)]:
            model.matrix(f"{block}ffn_{part}{'_exps' if experts else ''}.weight", rows, columns, experts=experts[:1])
        if experts:
            model.router(f"{block}ffn_gate_inp.weight", experts[0], width)
    return model


MODELS = {
    "tiny-f16.gguf": lambda: llama("tiny-f16", 1, F16, width=64, layers=2, heads=4, kv_heads=2, feed_forward=192, context=2048).file(),
    "tiny-q8_0.gguf": lambda: llama("tiny-q8_0", 2, Q8_0, width=128, layers=2, heads=4, kv_heads=2, feed_forward=256, context=2048).file(),
}


def write(models, folder, check):
    """Write models (name: what makes its bytes) into a folder, or only compare them with what is there; the exit code."""
    drifted = 0
    for name, make in models.items():
        path, data = folder / name, make()
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        elif not path.is_file() or path.read_bytes() != data:
            print(f"{path}: missing, or not what scripts/{Path(sys.argv[0]).name} makes; run it", file=sys.stderr)
            drifted += 1
            continue
        print(f"{hashlib.sha256(data).hexdigest()}  {len(data)} bytes  {name}")
    return 1 if drifted else 0


def main():
    parser = argparse.ArgumentParser(description="make small GGUF models", usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    parser.add_argument("--out", type=Path, default=MODELS_DIR, metavar="DIR")
    parser.add_argument("--make", nargs=3, metavar=("NAME", "WIDTH", "LAYERS"), help="another one; WIDTH is a multiple of 128")
    parser.add_argument("--experts", nargs=2, type=int, metavar=("N", "USED"), default=(), help="of that one: how many experts, and how many at work")
    parser.add_argument("--parts", type=int, metavar="N", help="that one in several files")
    arguments = parser.parse_args()
    models = MODELS
    if arguments.make:
        name, width, layers = arguments.make[0], int(arguments.make[1]), int(arguments.make[2])
        model = llama(name, 3, Q8_0, width, layers, width // 64, width // 128, 3 * width, context=4096, experts=tuple(arguments.experts))
        models = {name: model.file}
        if arguments.parts:
            files = enumerate(model.files(arguments.parts), 1)
            models = {f"{name}-{part:05}-of-{arguments.parts:05}.gguf": lambda data=data: data for part, data in files}
    return write(models, arguments.out, arguments.check)


if __name__ == "__main__":
    sys.exit(main())
