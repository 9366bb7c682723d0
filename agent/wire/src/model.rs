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
    /// Tensors by which that is decided, with their bytes: tables, and the output's matrix. `None` for a type that isn't known.
    #[serde(default)]
    pub tables: BTreeMap<String, Option<u64>>,
    /// Of all bytes, those of tensors that have a part for each expert, of which a token reads `experts_used`. `None` where that can't be
    /// told, as in records of earlier builds.
    #[serde(default)]
    pub expert_bytes: Option<u64>,
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
    /// So many files are the model, and tensors and their sums are those of all of them.
    #[serde(default)]
    pub files: Option<u64>,
}

const OUTPUT: &str = "output.weight";
/// Tables that are nothing else: embeddings of words for each layer, and of places.
const TABLES: [&str; 2] = ["per_layer_token_embd.weight", "position_embd.weight"];

impl Gguf {
    /// Embeddings of words, which every model has; where it has no matrix of the output, they are that, too, and all of them are read.
    pub const EMBEDDINGS: &str = "token_embd.weight";

    /// Is this tensor one of [`Gguf::tables`]?
    #[must_use]
    pub fn is_table(tensor: &str) -> bool {
        tensor == Gguf::EMBEDDINGS || tensor == OUTPUT || TABLES.contains(&tensor)
    }

    /// [`Gguf::lookup_bytes`] of a whole model.
    #[must_use]
    pub fn looked_up(tables: &BTreeMap<String, Option<u64>>) -> Option<u64> {
        let embeddings = tables.contains_key(OUTPUT).then_some(Gguf::EMBEDDINGS);
        let looked_up = TABLES.into_iter().chain(embeddings).filter_map(|name| tables.get(name));
        sum(looked_up.copied())
    }

    /// The model in these files, the first one first: sums are of all, the rest is what the first one says. `None` = they are not all files
    /// of one model, or an earlier build read them.
    #[must_use]
    pub fn of_files(files: &[&Gguf]) -> Option<Gguf> {
        let of = files.len() as u64;
        let is_place = |(file, part): (&&Gguf, u64)| file.split == Some(Split { part, of });
        let is_whole = of > 1 && files.iter().zip(1..).all(is_place);
        let tables: BTreeMap<String, Option<u64>> = files.iter().flat_map(|file| file.tables.clone()).collect();
        let mut tensor_bytes: BTreeMap<String, Option<u64>> = BTreeMap::new();
        for (name, bytes) in files.iter().flat_map(|file| &file.tensor_bytes) {
            let all = tensor_bytes.entry(name.clone()).or_insert(Some(0));
            *all = sum([*all, *bytes]);
        }
        (is_whole && tables.contains_key(Gguf::EMBEDDINGS)).then(|| Gguf {
            lookup_bytes: Gguf::looked_up(&tables),
            weight_bytes: sum(tensor_bytes.values().copied()),
            expert_bytes: sum(files.iter().map(|file| file.expert_bytes)),
            parameters: files.iter().map(|file| file.parameters).fold(0, u64::saturating_add),
            split: None,
            files: Some(of),
            tables,
            tensor_bytes,
            ..(*files[0]).clone()
        })
    }
}

/// Bytes together; `None` with one that isn't known, or beyond what can be.
pub fn sum(bytes: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    bytes.into_iter().try_fold(0, |sum: u64, bytes| sum.checked_add(bytes?))
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
