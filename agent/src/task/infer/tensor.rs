//! Tensors of a task: generated inputs, facts about inputs and outputs, the output digest.

use super::InferError;
use isotherm_wire::task::TensorFact;
use rten::{DataType, Dimension, Model, NodeId, Value, ValueType};
use rten_tensor::Tensor;
use rten_tensor::prelude::*;
use sha2::{Digest, Sha256};

/// How many of a row's values the digest ranks.
const RANKED: usize = 8;

/// One generated input.
#[derive(Debug)]
pub struct Input {
    pub id: NodeId,
    pub name: String,
    pub value: Value,
}

/// A tensor that we can't make or read.
#[derive(Debug)]
pub struct TensorError {
    tensor: String,
    reason: String,
}

impl TensorError {
    /// The error with the file it is about.
    pub fn of_model(self, path: &str) -> InferError {
        InferError::Tensor { path: path.to_owned(), tensor: self.tensor, reason: self.reason }
    }
}

/// Makes the model's inputs, in its order, from one splitmix64 stream that starts at `seed`.
///
/// One number of the stream per element: `f32` takes its upper 24 bits and is uniform in [-1, 1); integers take its upper 6
/// bits and are uniform in 0..64, small enough for the ids of any real vocabulary. A dimension that the model leaves open is 1.
/// The engine knows no `i64` or `bool`, both are `i32` there; `f16` and `f64` are `f32`.
pub fn generate(model: &Model, seed: u64) -> Result<Vec<Input>, TensorError> {
    let mut stream = SplitMix64(seed);
    let names = names(model, model.input_ids());
    model.input_ids().iter().zip(names).map(|(&id, name)| generate_one(model, id, name, &mut stream)).collect()
}

fn generate_one(model: &Model, id: NodeId, name: String, stream: &mut SplitMix64) -> Result<Input, TensorError> {
    let failed = |reason: String| TensorError { tensor: name.clone(), reason };
    let info = model.node_info(id).ok_or_else(|| failed("unknown to the engine".to_owned()))?;
    let dimensions = info.shape().ok_or_else(|| failed("the model declares no shape, can't generate values".to_owned()))?;
    let shape: Vec<usize> = dimensions
        .iter()
        .map(|dimension| match dimension {
            Dimension::Fixed(size) => *size,
            Dimension::Symbolic(_) => 1,
        })
        .collect();
    let too_large = || failed(format!("no memory for shape {shape:?}"));
    let count = shape.iter().try_fold(1_usize, |count, &size| count.checked_mul(size)).ok_or_else(too_large)?;
    let value = match info.dtype() {
        Some(ValueType::Tensor(DataType::Float)) => filled(&shape, count, || stream.next_f32()),
        Some(ValueType::Tensor(DataType::Int32)) => filled(&shape, count, || i32::from(stream.next_id())),
        Some(ValueType::Tensor(DataType::Int8)) => filled(&shape, count, || stream.next_id()),
        Some(ValueType::Tensor(DataType::UInt8)) => filled(&shape, count, || stream.next_id().unsigned_abs()),
        Some(other) => return Err(failed(format!("can't generate values of type {other}"))),
        None => return Err(failed("can't generate values of its type, which the engine does not support".to_owned())),
    };
    let value = value.ok_or_else(too_large)?;
    Ok(Input { id, name, value })
}

/// A tensor of `count` values; `None` if there is no memory for them.
fn filled<T>(shape: &[usize], count: usize, mut next: impl FnMut() -> T) -> Option<Value>
where
    Value: From<Tensor<T>>,
{
    let mut values = Vec::new();
    values.try_reserve_exact(count).ok()?;
    values.extend((0..count).map(|_| next()));
    Some(Tensor::from_data(shape, values).into())
}

/// Sebastiano Vigna's splitmix64: tiny, and the same stream in any language.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in [-1, 1), a multiple of 2⁻²³: every step is exact in float32.
    fn next_f32(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / 8_388_608.0 - 1.0
    }

    /// Uniform in 0..64.
    fn next_id(&mut self) -> i8 {
        (self.next_u64() >> 58) as i8
    }
}

/// Names of graph nodes, in order.
pub fn names(model: &Model, ids: &[NodeId]) -> Vec<String> {
    ids.iter().map(|&id| model.node_info(id).and_then(|info| info.name()).unwrap_or_default().to_owned()).collect()
}

/// Calls `$body` with the typed tensor inside `$value`; a sequence of tensors is an error.
macro_rules! with_tensor {
    ($name:expr, $value:expr, $tensor:ident => $body:expr) => {
        match $value {
            Value::FloatTensor($tensor) => Ok($body),
            Value::Int32Tensor($tensor) => Ok($body),
            Value::Int8Tensor($tensor) => Ok($body),
            Value::UInt8Tensor($tensor) => Ok($body),
            other => Err(TensorError { tensor: $name.to_owned(), reason: format!("can't read values of type {}", other.dtype()) }),
        }
    };
}

/// Name, type, shape and exact content of one tensor.
pub fn fact(name: &str, value: &Value) -> Result<TensorFact, TensorError> {
    with_tensor!(name, value, tensor => {
        let mut hasher = Sha256::new();
        tensor.iter().for_each(|number| hasher.update(number.to_le_bytes()));
        let dtype = match value.dtype() {
            ValueType::Tensor(element) => element.to_string(),
            other => other.to_string(),
        };
        TensorFact { name: name.to_owned(), dtype, shape: tensor.shape().iter().map(|&size| size as u64).collect(), sha256: hex(hasher) }
    })
}

/// The output digest ([`isotherm_wire::task::OUTPUT_DIGEST_METHOD`]) of `values`, which have the `names`, in the model's order.
///
/// Hashed per output, all numbers as little-endian u64: length of the name, name, rank, dimensions, then the indices row by row.
/// A row shorter than eight gives all its indices; a scalar is one row of one. Not-a-number ranks below every number.
pub fn digest(names: &[String], values: &[Value]) -> Result<String, TensorError> {
    let mut hasher = Sha256::new();
    for (name, value) in names.iter().zip(values) {
        with_tensor!(name, value, tensor => {
            let shape = tensor.shape();
            hasher.update((name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update((shape.len() as u64).to_le_bytes());
            shape.iter().for_each(|&size| hasher.update((size as u64).to_le_bytes()));
            let row_length = shape.last().copied().unwrap_or(1);
            rank_rows(row_length, tensor.iter().map(|&number| f64::from(number)), |index| hasher.update((index as u64).to_le_bytes()));
        })?;
    }
    Ok(hex(hasher))
}

/// Gives, row by row, the indices of the largest values in descending order.
fn rank_rows(row_length: usize, values: impl Iterator<Item = f64>, mut emit: impl FnMut(usize)) {
    let mut best: Vec<(usize, f64)> = Vec::with_capacity(RANKED + 1);
    let mut index = 0;
    for value in values {
        let place = best.iter().position(|&(_, other)| value > other || (other.is_nan() && !value.is_nan())).unwrap_or(best.len());
        best.insert(place, (index, value));
        best.truncate(RANKED);
        index += 1;
        if index == row_length {
            best.drain(..).for_each(|(index, _)| emit(index));
            index = 0;
        }
    }
}

fn hex(hasher: Sha256) -> String {
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn ranks(row_length: usize, values: &[f64]) -> Vec<usize> {
        let mut indices = Vec::new();
        rank_rows(row_length, values.iter().copied(), |index| indices.push(index));
        indices
    }

    /// First numbers at seed 1234567, from the task "Pseudo-random numbers/Splitmix64" of Rosetta Code.
    #[test]
    fn the_stream_is_that_of_the_published_splitmix64() {
        let mut stream = SplitMix64(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| stream.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn generated_numbers_stay_in_their_ranges() {
        let mut stream = SplitMix64(7);
        assert!((0..10_000).map(|_| stream.next_f32()).all(|number| (-1.0..1.0).contains(&number)));
        assert!((0..10_000).map(|_| stream.next_id()).all(|id| (0..64).contains(&id)));
    }

    #[test]
    fn a_row_ranks_its_eight_largest_and_a_tie_goes_to_the_lower_index() {
        assert_eq!(ranks(3, &[1.0, 3.0, 2.0, 5.0, 5.0, 9.0]), [1, 2, 0, 2, 0, 1]);
        assert_eq!(ranks(10, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]), [9, 8, 7, 6, 5, 4, 3, 2]);
        assert_eq!(ranks(3, &[f64::NAN, -1.0, -f64::NAN]), [1, 0, 2]);
        assert_eq!(ranks(2, &[-0.0, 0.0]), [0, 1]);
    }

    #[test]
    fn rounding_keeps_the_digest_and_another_answer_changes_it() {
        let digest_of =
            |name: &str, shape: &[usize], values: &[f32]| digest(&[name.to_owned()], &[Value::from_shape(shape, values.to_vec()).unwrap()]).unwrap();
        let golden = digest_of("y", &[1, 3], &[0.1, 0.7, 0.2]);
        assert_eq!(golden, digest_of("y", &[1, 3], &[0.1, 0.700_000_1, 0.199_999_9]));
        assert_ne!(golden, digest_of("y", &[1, 3], &[0.7, 0.1, 0.2]));
        assert_ne!(golden, digest_of("z", &[1, 3], &[0.1, 0.7, 0.2]));
        assert_ne!(golden, digest_of("y", &[3], &[0.1, 0.7, 0.2]));
        assert_eq!(digest_of("y", &[], &[2.0]).len(), 64, "a scalar has a digest");
    }

    #[test]
    fn a_fact_hashes_the_little_endian_values() {
        let value = Value::from_shape([2], vec![1_i32, -1]).unwrap();
        let expected = hex(Sha256::new_with_prefix([1, 0, 0, 0, 255, 255, 255, 255]));
        assert_eq!(fact("ids", &value).unwrap(), TensorFact { name: "ids".to_owned(), dtype: "i32".to_owned(), shape: vec![2], sha256: expected });
    }
}
