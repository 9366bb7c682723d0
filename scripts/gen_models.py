#!/usr/bin/env python3
"""Make the example models under configs/models, byte for byte the same every time.

Needs Python 3.11 or newer with onnx 1.23.2, numpy 2.4.6 and protobuf 7.36.2:

    python3 -m venv /tmp/venv-models
    /tmp/venv-models/bin/pip install -r scripts/requirements-models.txt
    /tmp/venv-models/bin/python scripts/gen_models.py           # write the files
    /tmp/venv-models/bin/python scripts/gen_models.py --check   # compare, exit 1 if one drifted

Weights come from integers (splitmix64) scaled by one float32 factor per tensor, so no libm and no random
number generator of a library decides a bit of them. Nothing is trained and nothing is downloaded.
"""

import argparse
import hashlib
import math
import sys

import gen_gguf
import numpy as np
import onnx
from onnx import TensorProto, helper

# Chosen among the first few hundred integers so that, with the inputs that the agent generates for `seed: 1`,
# neighbours among the nine largest values of every output row are far apart compared with float32 rounding.
TINY_CNN_SEED = 107
TINY_TRANSFORMER_SEED = 390

# LayerNormalization is an operator of its own since opset 17.
OPSET = 17
# The IR version that goes with opset 17; older runtimes refuse a newer one.
IR_VERSION = 8


def splitmix64(seed: int, count: int) -> np.ndarray:
    """The first `count` outputs of splitmix64 as uint64."""
    state = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


class Graph:
    """A graph under construction: nodes in execution order and initializers by name."""

    def __init__(self, name: str, seed: int):
        self.name = name
        self.seed = seed
        self.nodes = []
        self.initializers = []

    def constant(self, name: str, values, dtype) -> str:
        """Add an initializer with the given values; returns its name."""
        array = np.ascontiguousarray(np.array(values, dtype=np.dtype(dtype).newbyteorder("<")))
        elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.initializers.append(helper.make_tensor(name, elem_type, array.shape, array.tobytes(), raw=True))
        return name

    def weight(self, name: str, shape, bound: float) -> str:
        """Add a float32 initializer, uniform in [-bound, bound). Its stream depends on the seed and its own name only."""
        key = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        bits = splitmix64(int.from_bytes(key[:8], "little"), math.prod(shape)) >> np.uint64(40)
        unit = bits.astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)
        return self.constant(name, (unit * np.float32(bound)).reshape(shape), np.float32)

    def node(self, op_type: str, inputs, name: str, **attributes) -> str:
        """Add a node with one output, which has the node's name; returns that name."""
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def serialize(self, graph_input, graph_output) -> bytes:
        """Check the model and give the bytes of its file."""
        graph = helper.make_graph(self.nodes, self.name, [graph_input], [graph_output], self.initializers)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="isotherm gen_models.py",
        )
        onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString(deterministic=True)


def tiny_cnn(seed: int = TINY_CNN_SEED) -> bytes:
    """A depthwise-separable CNN: image 1x3x96x96 to 100 logits."""
    graph = Graph("tiny-cnn", seed)

    def conv(x, name, channels_in, channels_out, kernel, stride=1, groups=1):
        fan_in = channels_in // groups * kernel * kernel
        weight = graph.weight(f"{name}.weight", (channels_out, channels_in // groups, kernel, kernel), math.sqrt(6 / fan_in))
        bias = graph.weight(f"{name}.bias", (channels_out,), 0.1)
        return graph.node(
            "Conv",
            [x, weight, bias],
            name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=groups,
        )

    x = graph.node("Relu", [conv("image", "stem", 3, 16, kernel=3, stride=2)], "stem.relu")
    channels = 16
    blocks = [(32, 1), (48, 2), (48, 1), (96, 2), (96, 1), (96, 1), (192, 2), (192, 1), (192, 1)]
    for index, (channels_out, stride) in enumerate(blocks, start=1):
        block = f"block{index}"
        y = conv(x, f"{block}.depthwise", channels, channels, kernel=3, stride=stride, groups=channels)
        y = graph.node("Relu", [y], f"{block}.depthwise.relu")
        y = conv(y, f"{block}.pointwise", channels, channels_out, kernel=1)
        if stride == 1 and channels == channels_out:
            y = graph.node("Add", [x, y], f"{block}.residual")
        x = graph.node("Relu", [y], f"{block}.relu")
        channels = channels_out
    x = graph.node("GlobalAveragePool", [x], "pool")
    x = graph.node("Flatten", [x], "flatten", axis=1)
    weight = graph.weight("classifier.weight", (channels, 100), math.sqrt(3 / channels))
    bias = graph.weight("classifier.bias", (100,), 0.1)
    graph.node("Gemm", [x, weight, bias], "logits")
    return graph.serialize(
        helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 96, 96]),
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 100]),
    )


def tiny_transformer(seed: int = TINY_TRANSFORMER_SEED) -> bytes:
    """A causal transformer with two layers: 64 token ids to 64 rows of 64 logits."""
    layers, width, heads, length, vocabulary = 2, 128, 4, 64, 64
    head_width = width // heads
    graph = Graph("tiny-transformer", seed)
    split = graph.constant("split_heads", [1, length, heads, head_width], np.int64)
    join = graph.constant("join_heads", [1, length, width], np.int64)
    scale = graph.constant("attention_scale", 1 / math.sqrt(head_width), np.float32)
    future = graph.constant("future_mask", np.triu(np.full((1, 1, length, length), -1e9), k=1), np.float32)
    half = graph.constant("half", 0.5, np.float32)
    one = graph.constant("one", 1.0, np.float32)
    sqrt_half = graph.constant("sqrt_half", math.sqrt(0.5), np.float32)

    def norm(x, name):
        gain = graph.constant(f"{name}.gain", np.ones(width), np.float32)
        shift = graph.weight(f"{name}.shift", (width,), 0.1)
        return graph.node("LayerNormalization", [x, gain, shift], name, axis=-1, epsilon=1e-5)

    def linear(x, name, width_in, width_out):
        weight = graph.weight(f"{name}.weight", (width_in, width_out), math.sqrt(3 / width_in))
        return graph.node("MatMul", [x, weight], name)

    def attention(x, layer):
        def by_head(part, perm):
            y = graph.node("Reshape", [linear(x, f"{layer}.{part}", width, width), split], f"{layer}.{part}.split")
            return graph.node("Transpose", [y], f"{layer}.{part}.heads", perm=perm)

        query, key, value = by_head("query", [0, 2, 1, 3]), by_head("key", [0, 2, 3, 1]), by_head("value", [0, 2, 1, 3])
        scores = graph.node("Mul", [graph.node("MatMul", [query, key], f"{layer}.scores"), scale], f"{layer}.scores.scaled")
        scores = graph.node("Add", [scores, future], f"{layer}.scores.masked")
        weights = graph.node("Softmax", [scores], f"{layer}.attention", axis=-1)
        mixed = graph.node("MatMul", [weights, value], f"{layer}.mixed")
        mixed = graph.node("Transpose", [mixed], f"{layer}.mixed.by_token", perm=[0, 2, 1, 3])
        mixed = graph.node("Reshape", [mixed, join], f"{layer}.mixed.joined")
        return linear(mixed, f"{layer}.output", width, width)

    def feed_forward(x, layer):
        y = linear(x, f"{layer}.up", width, 4 * width)
        # GELU by its definition: y/2 * (1 + erf(y/sqrt 2)); opset 17 has no operator for it.
        erf = graph.node("Erf", [graph.node("Mul", [y, sqrt_half], f"{layer}.gelu.scaled")], f"{layer}.gelu.erf")
        y = graph.node("Mul", [y, graph.node("Add", [erf, one], f"{layer}.gelu.gate")], f"{layer}.gelu.gated")
        y = graph.node("Mul", [y, half], f"{layer}.gelu")
        return linear(y, f"{layer}.down", 4 * width, width)

    embedding = graph.weight("embedding", (vocabulary, width), 1.0)
    position = graph.weight("position", (1, length, width), 1.0)
    x = graph.node("Add", [graph.node("Gather", [embedding, "ids"], "embedded", axis=0), position], "positioned")
    for index in range(1, layers + 1):
        layer = f"layer{index}"
        x = graph.node("Add", [x, attention(norm(x, f"{layer}.norm1"), layer)], f"{layer}.attended")
        x = graph.node("Add", [x, feed_forward(norm(x, f"{layer}.norm2"), layer)], f"{layer}.fed")
    head = graph.weight("head.weight", (width, vocabulary), math.sqrt(3 / width))
    graph.node("MatMul", [norm(x, "final_norm"), head], "logits")
    return graph.serialize(
        helper.make_tensor_value_info("ids", TensorProto.INT64, [1, length]),
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, length, vocabulary]),
    )


MODELS = {"tiny-cnn.onnx": tiny_cnn, "tiny-transformer.onnx": tiny_transformer}


def main() -> int:
    parser = argparse.ArgumentParser(description="make the example models under configs/models")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a committed file differs")
    check = parser.parse_args().check
    return gen_gguf.write(MODELS, gen_gguf.MODELS_DIR, check)


if __name__ == "__main__":
    sys.exit(main())
