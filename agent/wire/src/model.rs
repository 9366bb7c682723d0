//! What a model's own file says of it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The header of a model's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ModelHeader {
    /// In GGUF, and whole.
    Gguf(Box<Gguf>),
    /// It says that it is in GGUF, by its name or its beginning, and isn't, or not whole: why, in words.
    Broken(String),
}

/// A model in GGUF as its header tells. `None` = it doesn't tell.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gguf {
    /// Of the format.
    pub version: u32,
    /// `llama`, `qwen2`, `gemma3`, …
    pub architecture: Option<String>,
    /// Type of the file as llama.cpp names it: `Q4_K_M`, `F16`.
    pub quantization: Option<String>,
    /// Type of tensors → their bytes together: what is really in it. A type that isn't known has its number, and no bytes.
    pub tensor_bytes: BTreeMap<String, Option<u64>>,
    /// Values in all tensors together.
    pub parameters: u64,
    /// Bytes of all tensors together; `None` with a type among them that isn't known.
    pub weight_bytes: Option<u64>,
    /// Of them, bytes of tables that a token takes single rows of: embeddings of its words, unless they are the output's matrix, too, and of
    /// its places. `None` in one file of several, where the rest may be in another, and with a type that isn't known.
    #[serde(default)]
    pub lookup_bytes: Option<u64>,
    /// Tokens of context that it was trained for.
    pub context_length: Option<u64>,
    /// Blocks of layers.
    pub layers: Option<u64>,
    /// Width of what flows from one to the next.
    pub embedding_length: Option<u64>,
    /// Attention heads, where every layer has as many.
    pub heads: Option<u64>,
    /// Those of keys and values, likewise.
    pub kv_heads: Option<u64>,
    /// Experts; `None` in a model without.
    pub experts: Option<u64>,
    /// Of them at work for a token.
    pub experts_used: Option<u64>,
    /// Tokens of its vocabulary.
    pub vocabulary: Option<u64>,
    /// It is one of several files; tensors and their sums are those of this one.
    pub split: Option<Split>,
}

/// A part of a model in several files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Split {
    /// From 1.
    pub part: u64,
    /// How many there are.
    pub of: u64,
}
