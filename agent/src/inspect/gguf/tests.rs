#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use std::fs;
use std::path::PathBuf;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/models").join(name)
}

fn of_bytes(bytes: &[u8]) -> Result<Gguf, GgufError> {
    read(bytes, bytes.len() as u64)
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn fact(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [text(key), kind.to_le_bytes().to_vec(), value.to_vec()].concat()
}

fn number(key: &str, value: u32) -> Vec<u8> {
    fact(key, 4, &value.to_le_bytes())
}

fn numbers(key: &str, values: &[u32]) -> Vec<u8> {
    let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    fact(key, 9, &[&4u32.to_le_bytes()[..], &((values.len() / 4) as u64).to_le_bytes(), &values].concat())
}

fn tensor(name: &str, dimensions: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let dimensions = [(dimensions.len() as u32).to_le_bytes().to_vec(), dimensions.iter().flat_map(|d| d.to_le_bytes()).collect()].concat();
    [text(name), dimensions, kind.to_le_bytes().to_vec(), offset.to_le_bytes().to_vec()].concat()
}

/// A file of these facts and tensors, with so many bytes of data.
fn file(facts: &[Vec<u8>], tensors: &[Vec<u8>], data: usize) -> Vec<u8> {
    let counts = [(tensors.len() as u64).to_le_bytes(), (facts.len() as u64).to_le_bytes()].concat();
    let mut file = [MAGIC.to_vec(), 3u32.to_le_bytes().to_vec(), counts, facts.concat(), tensors.concat()].concat();
    file.resize(file.len().next_multiple_of(ALIGNMENT as usize) + data, 0);
    file
}

#[test]
fn the_example_models_are_what_their_generator_says() {
    let whole = |name: &str| of_bytes(&fs::read(example(name)).unwrap()).unwrap();
    let expected = Gguf {
        version: 3,
        architecture: Some("llama".into()),
        quantization: Some("Q8_0".into()),
        // Two matrices of the vocabulary, and of each layer two square ones, two of half the heads and three of the feed-forward part.
        parameters: 2 * 384 * 128 + 2 * (2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 256) + 5 * 128,
        tensor_bytes: [("F32".to_owned(), Some(5 * 128 * 4)), ("Q8_0".to_owned(), Some((98_304 + 2 * 147_456) / 32 * 34))].into(),
        weight_bytes: Some(5 * 128 * 4 + (98_304 + 2 * 147_456) / 32 * 34),
        lookup_bytes: Some(384 * 128 / 32 * 34),
        tables: ["output.weight", "token_embd.weight"].map(|name| (name.to_owned(), Some(384 * 128 / 32 * 34))).into(),
        expert_bytes: Some(0),
        context_length: Some(2048),
        layers: Some(2),
        embedding_length: Some(128),
        heads: Some(4),
        kv_heads: Some(2),
        experts: None,
        experts_used: None,
        vocabulary: Some(384),
        split: None,
        files: None,
    };
    assert_eq!(whole("tiny-q8_0.gguf"), expected);
    let half = whole("tiny-f16.gguf");
    assert_eq!((half.quantization.as_deref(), half.parameters, half.weight_bytes), (Some("F16"), 147_776, Some(147_456 * 2 + 320 * 4)));
}

#[test]
fn facts_that_are_given_for_each_layer_count_where_all_are_equal() {
    let of = |kv_heads: &[u32]| {
        let architecture = fact("general.architecture", 8, &text("openelm"));
        of_bytes(&file(&[architecture, numbers("openelm.attention.head_count_kv", kv_heads), number("openelm.expert_count", 8)], &[], 0)).unwrap()
    };
    assert_eq!((of(&[4, 4, 4]).kv_heads, of(&[3, 4, 5]).kv_heads, of(&[]).kv_heads), (Some(4), None, None));
    assert_eq!((of(&[4]).experts, of(&[4]).heads, of(&[4]).weight_bytes), (Some(8), None, Some(0)));
}

#[test]
fn embeddings_are_looked_up_unless_they_are_the_matrix_of_the_output_too() {
    let of = |facts: &[Vec<u8>], named: &[(&str, u32)]| {
        let tensors: Vec<Vec<u8>> = named.iter().map(|(name, kind)| tensor(name, &[64, 2], *kind, 0)).collect();
        of_bytes(&file(facts, &tensors, 1024)).unwrap().lookup_bytes
    };
    let (words, output, layers) = (("token_embd.weight", 8), ("output.weight", 1), ("per_layer_token_embd.weight", 0));
    assert_eq!([of(&[], &[words, output]), of(&[], &[words]), of(&[], &[words, layers])], [Some(136), Some(0), Some(512)]);
    assert_eq!(of(&[], &[output, layers, words, ("position_embd.weight", 1)]), Some(136 + 512 + 256));
    assert_eq!([of(&[], &[("token_embd.weight", 99), output]), of(&[], &[("token_embd.weight", 99)])], [None, Some(0)]);
    assert_eq!(of(&[fact("split.count", 2, &2u16.to_le_bytes())], &[words, output]), None);
}

#[test]
fn tensors_of_experts_are_known_by_their_names() {
    let of = |names: &[&str]| {
        let tensors: Vec<Vec<u8>> = names.iter().map(|name| tensor(name, &[64, 2], 8, 0)).collect();
        of_bytes(&file(&[], &tensors, 1024)).unwrap().expert_bytes
    };
    let dense = ["blk.0.ffn_up.weight", "blk.1.ffn_up_shexp.weight", "blk.1.ffn_gate_inp.weight", "blk.1.exp_probs_b.bias"];
    assert_eq!(of(&dense), Some(0));
    assert_eq!(of(&[dense[0], "blk.1.ffn_up_exps.weight", "blk.1.ffn_down_exps.bias"]), Some(2 * 136));
    assert_eq!(of(&["blk.1.ffn_up_exps.weight", "blk.1.ffn_up_chexps.weight"]), None);
}

#[test]
fn the_files_of_a_model_are_taken_together_if_all_are_there_and_of_one() {
    let part = |no: u16, count: u16, tensors: &[(&str, u32)]| {
        let tensors: Vec<Vec<u8>> = tensors.iter().map(|(name, kind)| tensor(name, &[64, 2], *kind, 0)).collect();
        let facts = [("split.no", no), ("split.count", count)].map(|(key, value)| fact(key, 2, &value.to_le_bytes()));
        of_bytes(&file(&facts, &tensors, 1024)).unwrap()
    };
    let first = part(0, 3, &[("token_embd.weight", 8), ("blk.0.ffn_up_exps.weight", 8)]);
    let second = part(1, 3, &[("blk.1.ffn_up_exps.weight", 8), ("blk.1.attn_q.weight", 0)]);
    let third = part(2, 3, &[("output.weight", 1)]);
    let expected = Gguf {
        parameters: 5 * 128,
        tensor_bytes: [("Q8_0".to_owned(), Some(3 * 136)), ("F32".to_owned(), Some(512)), ("F16".to_owned(), Some(256))].into(),
        weight_bytes: Some(3 * 136 + 512 + 256),
        lookup_bytes: Some(136),
        tables: [("token_embd.weight".to_owned(), Some(136)), ("output.weight".to_owned(), Some(256))].into(),
        expert_bytes: Some(2 * 136),
        split: None,
        files: Some(3),
        ..first.clone()
    };
    assert_eq!(Gguf::of_files(&[&first, &second, &third]), Some(expected));
    for others in [vec![&first, &second], vec![&first, &third, &second], vec![&first], vec![&second, &first, &third]] {
        assert_eq!(Gguf::of_files(&others), None);
    }
    let of_another = part(1, 2, &[]);
    assert_eq!(Gguf::of_files(&[&first, &of_another, &third]), None);
    let unknown = part(2, 3, &[("output.weight", 99)]);
    let together = Gguf::of_files(&[&first, &second, &unknown]).unwrap();
    assert_eq!((together.weight_bytes, together.lookup_bytes, together.parameters), (None, Some(136), 5 * 128));
}

#[test]
fn a_part_of_a_model_says_which() {
    let number = |key: &str, value: u16| fact(key, 2, &value.to_le_bytes());
    let split = |facts: &[Vec<u8>]| of_bytes(&file(facts, &[], 0)).unwrap().split;
    assert_eq!(split(&[number("split.no", 1), number("split.count", 3)]), Some(Split { part: 2, of: 3 }));
    assert_eq!((split(&[number("split.count", 1)]), split(&[])), (None, None));
}

#[test]
fn a_type_that_is_not_known_leaves_the_bytes_open_and_the_rest_told() {
    let tensors = [tensor("a", &[64, 2], 8, 0), tensor("b", &[64], 99, 160)];
    let gguf = of_bytes(&file(&[number("general.file_type", 77)], &tensors, 256)).unwrap();
    assert_eq!((gguf.parameters, gguf.weight_bytes, gguf.quantization.as_deref()), (192, None, Some("type 77")));
    assert_eq!(gguf.tensor_bytes, [("Q8_0".to_owned(), Some(136)), ("type 99".to_owned(), None)].into());
}

#[test]
fn a_file_that_ends_before_its_data_is_truncated_wherever_it_ends() {
    let whole = fs::read(example("tiny-q8_0.gguf")).unwrap();
    for length in (4..whole.len()).step_by(997).chain([whole.len() - 1]) {
        let error = of_bytes(&whole[..length]).unwrap_err();
        assert!(matches!(error, GgufError::Truncated { .. }), "{length}: {error}");
    }
    let error = of_bytes(&whole[..whole.len() - 1]).unwrap_err().to_string();
    assert_eq!(error, "truncated: data of its tensors would need 430496 bytes, and the file has 430495");
}

#[test]
fn what_is_no_such_file_is_named() {
    let said = |bytes: &[u8]| of_bytes(bytes).unwrap_err().to_string();
    assert_eq!(said(b"not a model"), "not a GGUF file: it begins with \"not \" instead of \"GGUF\"");
    assert_eq!(said(b""), "not a GGUF file: it begins with \"\" instead of \"GGUF\"");
    assert_eq!(said(b"GGUF\x01\0\0\0"), "GGUF version 1, and 2 and 3 are known");
    assert_eq!(said(b"GGUF\0\0\0\x03"), "a GGUF file for machines of the other byte order");
    assert_eq!(said(&file(&[fact("k", 13, &[])], &[], 0)), "damaged: a fact of kind 13");
    assert_eq!(said(&file(&[number("general.alignment", 0)], &[], 0)), "damaged: where its tensors lie");
    assert_eq!(said(&file(&[], &[tensor("t", &[u64::MAX, 2], 0, 0)], 0)), "damaged: tensor \"t\" is larger than any");
    assert_eq!(said(&file(&[], &[tensor("t", &[1], 0, u64::MAX)], 0)), "damaged: tensor \"t\" is larger than any");
    assert_eq!(said(&file(&[], &[tensor("t", &[1; 5], 0, 0)], 0)), "damaged: tensor \"t\" has 5 dimensions");
    // Counts that no file of this length can keep are refused before anything is taken by them.
    let endless = [MAGIC.to_vec(), 3u32.to_le_bytes().to_vec(), u64::MAX.to_le_bytes().to_vec(), u64::MAX.to_le_bytes().to_vec()].concat();
    assert!(said(&endless).starts_with("truncated: its facts would need"), "{}", said(&endless));
    let array = [8u32.to_le_bytes().to_vec(), (1u64 << 60).to_le_bytes().to_vec()].concat();
    assert!(said(&file(&[fact("k", 9, &array)], &[], 64)).starts_with("truncated: an array of its header"));
}

#[test]
fn damage_of_any_byte_of_a_header_is_refused_or_understood_and_nothing_else() {
    let whole = fs::read(example("tiny-f16.gguf")).unwrap();
    let mut header = whole[..whole.len() - of_bytes(&whole).unwrap().weight_bytes.unwrap() as usize].to_vec();
    let mut understood = 0;
    for at in 4..header.len() {
        for value in [0, 0x7f, 0xff] {
            let sound = std::mem::replace(&mut header[at], value);
            understood += usize::from(read(&header[..], whole.len() as u64).is_ok());
            header[at] = sound;
        }
    }
    assert!(understood > 0);
}

#[test]
fn only_what_is_in_gguf_or_claims_to_be_has_a_header() {
    let dir = tempfile::tempdir().unwrap();
    let said = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        header(&path, content.len() as u64)
    };
    let model = file(&[number("general.file_type", 15)], &[], 0);
    assert!(matches!(said("m.bin", &model), Some(ModelHeader::Gguf(gguf)) if gguf.quantization.as_deref() == Some("Q4_K_M")));
    assert_eq!(said("m.onnx", b"\x08\x08"), None);
    assert!(matches!(said("m.GGUF", b"\x08\x08"), Some(ModelHeader::Broken(why)) if why.contains("not a GGUF file")));
    assert!(matches!(said("cut", &model[..20]), Some(ModelHeader::Broken(why)) if why.starts_with("truncated")));
}
