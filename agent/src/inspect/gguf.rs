//! The header of a model in GGUF: takes bytes and the length of the file they are from, gives what it says of the model. Must not know
//! what it is for.
//!
//! As of GGUF 2 and 3: magic, version, numbers of tensors and facts, the facts, a description of every tensor, and at the next multiple of
//! the alignment the tensors' data. Every length is held against the length of the file before anything is taken by it.

use crate::sys;
use isotherm_wire::model::{Gguf, ModelHeader, Split, sum};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::Path;

const MAGIC: &[u8; 4] = b"GGUF";
/// Where a file doesn't say otherwise.
const ALIGNMENT: u64 = 32;
/// A header is read no further: the largest of real models, with a vocabulary of a quarter of a million words and their merges, has 20 MB.
const MOST_HEADER_BYTES: u64 = 256 << 20;
/// A text that is kept has no more bytes: keys, the architecture.
const MOST_TEXT_BYTES: u64 = 4096;
/// Dimensions of a tensor, as many as ggml has.
const MOST_DIMENSIONS: u32 = 4;
/// How tensors with a part for each expert are named: `blk.0.ffn_up_exps.weight`. Others with `exps` in their names are not known.
const OF_EXPERTS: [&str; 2] = ["_exps.weight", "_exps.bias"];
/// Numbers of an array that are looked at: one for each layer.
const MOST_NUMBERS: u64 = 4096;

/// What is said of a model by its file, of so many bytes; `None` for one that isn't in GGUF and doesn't claim to be.
pub fn header(path: &Path, bytes: u64) -> Option<ModelHeader> {
    let claims = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let read = sys::open_regular(path).map_err(GgufError::from).and_then(|file| read(BufReader::with_capacity(256 << 10, file), bytes));
    match read {
        Ok(gguf) => Some(ModelHeader::Gguf(Box::new(gguf))),
        Err(GgufError::Magic(_)) if !claims => None,
        Err(e) => Some(ModelHeader::Broken(e.to_string())),
    }
}

/// Why a header can't be understood.
#[derive(Debug, PartialEq, Eq)]
pub enum GgufError {
    /// The first bytes, which are others.
    Magic(Vec<u8>),
    Version(u32),
    /// It ends within what it says to have.
    Truncated {
        what: &'static str,
        needed: u64,
        bytes: u64,
    },
    /// It says what can't be.
    Nonsense(String),
    Read(String),
}

impl fmt::Display for GgufError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            GgufError::Magic(found) => write!(f, "not a GGUF file: it begins with {:?} instead of \"GGUF\"", String::from_utf8_lossy(found)),
            GgufError::Version(version) if version.swap_bytes() < 16 => write!(f, "a GGUF file for machines of the other byte order"),
            GgufError::Version(version) => write!(f, "GGUF version {version}, and 2 and 3 are known"),
            GgufError::Truncated { what, needed, bytes } => {
                write!(f, "truncated: {what} would need {needed} bytes, and the file has {bytes}")
            }
            GgufError::Nonsense(what) => write!(f, "damaged: {what}"),
            GgufError::Read(why) => f.write_str(why),
        }
    }
}

impl From<io::Error> for GgufError {
    fn from(error: io::Error) -> GgufError {
        GgufError::Read(error.to_string())
    }
}

/// Read a header; `bytes`: length of the whole file.
///
/// # Errors
/// Any [`GgufError`]: also for a file that is shorter than its tensors.
pub fn read(source: impl Read, bytes: u64) -> Result<Gguf, GgufError> {
    let mut header = Header { source, bytes, at: 0 };
    let mut magic = Vec::new();
    header.source.by_ref().take(4).read_to_end(&mut magic)?;
    if magic != MAGIC {
        return Err(GgufError::Magic(magic));
    }
    header.at = 4;
    let version = header.u32()?;
    if !(2..=3).contains(&version) {
        return Err(GgufError::Version(version));
    }
    let (n_tensors, n_facts) = (header.u64()?, header.u64()?);
    // A fact has a key's length and a kind, a tensor a name's length, dimensions, a kind and an offset, at least.
    header.needs("its facts", n_facts, 12)?;
    header.needs("its tensors", n_tensors, 24)?;
    let mut facts = HashMap::new();
    for _ in 0..n_facts {
        let key = header.text()?;
        let value = header.value()?;
        if let (Some(key), Some(value)) = (key, value) {
            facts.insert(key, value);
        }
    }
    let mut tensors = Tensors { bytes: BTreeMap::new(), parameters: 0, tables: BTreeMap::new(), of_experts: Some(0), end: 0 };
    for _ in 0..n_tensors {
        tensors.add(&mut header)?;
    }
    let alignment = facts.get("general.alignment").and_then(Value::number).unwrap_or(ALIGNMENT);
    let start = if alignment == 0 { None } else { header.at.checked_next_multiple_of(alignment) };
    let end = start.and_then(|start| start.checked_add(tensors.end)).ok_or_else(|| GgufError::Nonsense("where its tensors lie".into()))?;
    if n_tensors > 0 && end > bytes {
        return Err(GgufError::Truncated { what: "data of its tensors", needed: end, bytes });
    }
    Ok(gguf(version, &facts, tensors))
}

fn gguf(version: u32, facts: &HashMap<String, Value>, tensors: Tensors) -> Gguf {
    let text = |key: &str| if let Some(Value::Text(text)) = facts.get(key) { Some(text.clone()) } else { None };
    let number = |key: &str| facts.get(key).and_then(Value::number);
    let architecture = text("general.architecture");
    let own = |key: &str| number(&format!("{}.{key}", architecture.as_deref()?));
    let split = number("split.count").filter(|of| *of > 1).map(|of| Split { part: number("split.no").map_or(1, |no| no.saturating_add(1)), of });
    Gguf {
        version,
        quantization: number("general.file_type").map(file_type),
        parameters: tensors.parameters,
        weight_bytes: sum(tensors.bytes.values().copied()),
        lookup_bytes: if split.is_none() { Gguf::looked_up(&tensors.tables) } else { None },
        tables: tensors.tables,
        expert_bytes: tensors.of_experts,
        tensor_bytes: tensors.bytes,
        context_length: own("context_length"),
        layers: own("block_count"),
        embedding_length: own("embedding_length"),
        heads: own("attention.head_count"),
        kv_heads: own("attention.head_count_kv"),
        experts: own("expert_count").filter(|experts| *experts > 0),
        experts_used: own("expert_used_count").filter(|experts| *experts > 0),
        vocabulary: if let Some(Value::Array { length, .. }) = facts.get("tokenizer.ggml.tokens") { Some(*length) } else { own("vocab_size") },
        split,
        files: None,
        architecture,
    }
}

/// A header on its way.
struct Header<R> {
    source: R,
    /// Of the whole file.
    bytes: u64,
    at: u64,
}

/// A fact, as far as it is kept.
enum Value {
    Number(u64),
    Text(String),
    /// `all`: what every element is, if they are numbers and equal.
    Array {
        length: u64,
        all: Option<u64>,
    },
}

impl Value {
    fn number(&self) -> Option<u64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::Array { all, .. } => *all,
            Value::Text(_) => None,
        }
    }
}

impl<R: Read> Header<R> {
    /// Is there room for so many things of at least so many bytes?
    fn needs(&self, what: &'static str, count: u64, each: u64) -> Result<(), GgufError> {
        let needed = count.checked_mul(each).and_then(|needed| needed.checked_add(self.at)).unwrap_or(u64::MAX);
        match needed {
            _ if needed > self.bytes => Err(GgufError::Truncated { what, needed, bytes: self.bytes }),
            _ if needed > MOST_HEADER_BYTES => Err(GgufError::Nonsense(format!("a header of more than {} MiB", MOST_HEADER_BYTES >> 20))),
            _ => Ok(()),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        self.needs("its header", 1, N as u64)?;
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, GgufError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, GgufError> {
        self.take().map(u64::from_le_bytes)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), GgufError> {
        self.needs("its header", 1, bytes)?;
        let skipped = io::copy(&mut self.source.by_ref().take(bytes), &mut io::sink())?;
        self.at += skipped;
        if skipped == bytes { Ok(()) } else { Err(GgufError::Read("it became shorter meanwhile".into())) }
    }

    /// `None` for one that is too long to be kept, or isn't UTF-8.
    fn text(&mut self) -> Result<Option<String>, GgufError> {
        let length = self.u64()?;
        if length > MOST_TEXT_BYTES {
            return self.skip(length).map(|()| None);
        }
        self.needs("a text of its header", 1, length)?;
        let mut text = vec![0; length as usize];
        self.source.read_exact(&mut text)?;
        self.at += length;
        Ok(String::from_utf8(text).ok())
    }

    fn value(&mut self) -> Result<Option<Value>, GgufError> {
        let kind = self.u32()?;
        self.value_of(kind)
    }

    /// `None` for what isn't kept: numbers that are no whole ones from 0 on.
    fn value_of(&mut self, kind: u32) -> Result<Option<Value>, GgufError> {
        let whole = |number: i64| u64::try_from(number).ok().map(Value::Number);
        Ok(match kind {
            0 | 7 => Some(Value::Number(u64::from(self.take::<1>()?[0]))),
            1 => whole(self.take().map(i8::from_le_bytes)?.into()),
            2 => Some(Value::Number(self.take().map(u16::from_le_bytes)?.into())),
            3 => whole(self.take().map(i16::from_le_bytes)?.into()),
            4 => Some(Value::Number(self.u32()?.into())),
            5 => whole(self.take().map(i32::from_le_bytes)?.into()),
            6 => self.skip(4).map(|()| None)?,
            8 => self.text()?.map(Value::Text),
            9 => Some(self.array()?),
            10 => Some(Value::Number(self.u64()?)),
            11 => whole(self.take().map(i64::from_le_bytes)?),
            12 => self.skip(8).map(|()| None)?,
            other => return Err(GgufError::Nonsense(format!("a fact of kind {other}"))),
        })
    }

    fn array(&mut self) -> Result<Value, GgufError> {
        let (kind, length) = (self.u32()?, self.u64()?);
        let each = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            // Arrays of arrays are allowed by the format and used by nobody; they would need a depth.
            other => return Err(GgufError::Nonsense(format!("an array of kind {other}"))),
        };
        self.needs("an array of its header", length, each)?;
        let mut all = None;
        match kind {
            8 => {
                for _ in 0..length {
                    let text = self.u64()?;
                    self.skip(text)?;
                }
            }
            _ if length > MOST_NUMBERS => self.skip(length * each)?,
            _ => {
                for n in 0..length {
                    let number = self.value_of(kind)?.as_ref().and_then(Value::number);
                    all = if n == 0 { number } else { all.filter(|_| number == all) };
                }
            }
        }
        Ok(Value::Array { length, all })
    }
}

/// All tensors together.
struct Tensors {
    bytes: BTreeMap<String, Option<u64>>,
    parameters: u64,
    tables: BTreeMap<String, Option<u64>>,
    of_experts: Option<u64>,
    /// Where the last one ends, from the beginning of the data.
    end: u64,
}

impl Tensors {
    fn add(&mut self, header: &mut Header<impl Read>) -> Result<(), GgufError> {
        let name = header.text()?.unwrap_or_default();
        let too_large = || GgufError::Nonsense(format!("tensor {name:?} is larger than any"));
        let n_dimensions = header.u32()?;
        if n_dimensions > MOST_DIMENSIONS {
            return Err(GgufError::Nonsense(format!("tensor {name:?} has {n_dimensions} dimensions")));
        }
        let mut values: u64 = 1;
        for _ in 0..n_dimensions {
            values = values.checked_mul(header.u64()?).ok_or_else(too_large)?;
        }
        let (kind, offset) = (header.u32()?, header.u64()?);
        self.parameters = self.parameters.checked_add(values).ok_or_else(too_large)?;
        let known = tensor_type(kind);
        let bytes = match known {
            Some((_, block, bytes)) => Some(values.div_ceil(block).checked_mul(bytes).ok_or_else(too_large)?),
            None => None,
        };
        let end = offset.checked_add(bytes.unwrap_or(0)).ok_or_else(too_large)?;
        self.end = self.end.max(end);
        let kind = known.map_or_else(|| format!("type {kind}"), |(kind, ..)| kind.to_owned());
        let of_kind = self.bytes.entry(kind).or_insert(Some(0));
        *of_kind = sum([*of_kind, bytes]);
        if name.contains("exps.") {
            let known = bytes.filter(|_| OF_EXPERTS.iter().any(|end| name.ends_with(end)));
            self.of_experts = sum([self.of_experts, known]);
        }
        if Gguf::is_table(&name) {
            self.tables.insert(name, bytes);
        }
        Ok(())
    }
}

/// Name, values of a block and its bytes. Numbers are ggml's, and never given anew: as of llama.cpp 0c1e570 (October 2026).
fn tensor_type(number: u32) -> Option<(&'static str, u64, u64)> {
    Some(match number {
        0 => ("F32", 1, 4),
        1 => ("F16", 1, 2),
        2 => ("Q4_0", 32, 18),
        3 => ("Q4_1", 32, 20),
        6 => ("Q5_0", 32, 22),
        7 => ("Q5_1", 32, 24),
        8 => ("Q8_0", 32, 34),
        9 => ("Q8_1", 32, 36),
        10 => ("Q2_K", 256, 84),
        11 => ("Q3_K", 256, 110),
        12 => ("Q4_K", 256, 144),
        13 => ("Q5_K", 256, 176),
        14 => ("Q6_K", 256, 210),
        15 => ("Q8_K", 256, 292),
        16 => ("IQ2_XXS", 256, 66),
        17 => ("IQ2_XS", 256, 74),
        18 => ("IQ3_XXS", 256, 98),
        19 => ("IQ1_S", 256, 50),
        20 => ("IQ4_NL", 32, 18),
        21 => ("IQ3_S", 256, 110),
        22 => ("IQ2_S", 256, 82),
        23 => ("IQ4_XS", 256, 136),
        24 => ("I8", 1, 1),
        25 => ("I16", 1, 2),
        26 => ("I32", 1, 4),
        27 => ("I64", 1, 8),
        28 => ("F64", 1, 8),
        29 => ("IQ1_M", 256, 56),
        30 => ("BF16", 1, 2),
        34 => ("TQ1_0", 256, 54),
        35 => ("TQ2_0", 256, 66),
        39 => ("MXFP4", 32, 17),
        40 => ("NVFP4", 64, 36),
        41 => ("Q1_0", 128, 18),
        42 => ("Q2_0", 64, 18),
        _ => return None,
    })
}

/// Name of a file's type as llama.cpp has it, without its `MOSTLY_`; as of the same.
fn file_type(number: u64) -> String {
    // What isn't specified in the file, and was guessed from its tensors, has this bit.
    const GUESSED: u64 = 1024;
    let name = match number & !GUESSED {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K_S",
        12 => "Q3_K_M",
        13 => "Q3_K_L",
        14 => "Q4_K_S",
        15 => "Q4_K_M",
        16 => "Q5_K_S",
        17 => "Q5_K_M",
        18 => "Q6_K",
        19 => "IQ2_XXS",
        20 => "IQ2_XS",
        21 => "Q2_K_S",
        22 => "IQ3_XS",
        23 => "IQ3_XXS",
        24 => "IQ1_S",
        25 => "IQ4_NL",
        26 => "IQ3_S",
        27 => "IQ3_M",
        28 => "IQ2_S",
        29 => "IQ2_M",
        30 => "IQ4_XS",
        31 => "IQ1_M",
        32 => "BF16",
        36 => "TQ1_0",
        37 => "TQ2_0",
        38 => "MXFP4_MOE",
        39 => "NVFP4",
        40 => "Q1_0",
        41 => "Q2_0",
        other => return format!("type {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests;
