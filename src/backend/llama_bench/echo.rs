//! What was passed against what the tool says it executed: a wrapper, a build with a mind of its own or a value that it bent would go
//! unseen. Pure.

use super::output::Test;
use crate::config::llama_option;
use crate::registry::Code;
use crate::store::record::Issue;
use indexmap::IndexMap;
use serde_json::Value;

/// How a value is written by whom.
#[derive(Clone, Copy)]
enum Form {
    Whole,
    /// `on`, `1`, `true`, 1 …; `auto` is −1.
    Switch,
    Word,
}
use Form::{Switch, Whole, Word};

/// Options, and the field in which the tool repeats each. Tensor splits and overrides are not among them: it rewrites those.
const REPEATED: [(&[&str], &str, Form); 24] = [
    (&["-t", "--threads"], "n_threads", Whole),
    (&["-b", "--batch-size"], "n_batch", Whole),
    (&["-ub", "--ubatch-size"], "n_ubatch", Whole),
    (&["-ctk", "--cache-type-k"], "type_k", Word),
    (&["-ctv", "--cache-type-v"], "type_v", Word),
    (&["-ngl", "--n-gpu-layers"], "n_gpu_layers", Whole),
    (&["-ncmoe", "--n-cpu-moe"], "n_cpu_moe", Whole),
    (&["-sm", "--split-mode"], "split_mode", Word),
    (&["-mg", "--main-gpu"], "main_gpu", Whole),
    (&["-dev", "--device"], "devices", Word),
    (&["-fa", "--flash-attn"], "flash_attn", Switch),
    (&["-nkvo", "--no-kv-offload"], "no_kv_offload", Switch),
    (&["-nopo", "--no-op-offload"], "no_op_offload", Switch),
    (&["--no-host"], "no_host", Switch),
    (&["--repack"], "repack", Switch),
    (&["-embd", "--embeddings"], "embeddings", Switch),
    (&["-mmp", "--mmap"], "use_mmap", Switch),
    (&["-lm", "--load-mode"], "load_mode", Word),
    (&["-lzm", "--lazy-mode"], "lazy_mode", Word),
    (&["-C", "--cpu-mask"], "cpu_mask", Word),
    (&["--cpu-strict"], "cpu_strict", Switch),
    (&["--poll"], "poll", Whole),
    (&["-fitt", "--fit-target"], "fit_target", Whole),
    (&["-fitc", "--fit-ctx"], "fit_min_ctx", Whole),
];

fn repeated(option: &str) -> Option<(&'static str, Form)> {
    REPEATED.iter().find(|(names, ..)| names.contains(&&*llama_option(option))).map(|(_, field, form)| (*field, *form))
}

/// Of a command line the options that the tool repeats, with their values.
pub(super) fn passed(argv: &[String]) -> IndexMap<String, String> {
    argv.windows(2).filter(|pair| repeated(&pair[0]).is_some()).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// What a test was executed with otherwise than it was asked for. A field that a build doesn't have, or a value that is no single one, says
/// nothing.
pub(super) fn differs(passed: &IndexMap<String, String>, tests: &[Test]) -> Option<Issue> {
    let mut said: Vec<String> = Vec::new();
    for (option, value) in passed {
        let Some((field, form)) = repeated(option) else { continue };
        for executed in tests.iter().filter_map(|test| test.settings.get(field)) {
            let words = format!("`{option} {value}` was passed, and the tool says `{field}` {executed}");
            if is_same(form, value, executed) == Some(false) && !said.contains(&words) {
                said.push(words);
            }
        }
    }
    (!said.is_empty()).then(|| Issue::new(Code::ExecutedDiffers, said.join("; ")))
}

/// What the tool says of the model that it had, where that is another than the one it was given. Sums of its tensors are none to go by: older
/// builds count a table of embeddings twice that is the output matrix, too.
pub(super) fn other_model(argv: &[String], tests: &[Test]) -> Option<Issue> {
    let passed = argv.windows(2).find_map(|pair| (pair[0] == "-m").then_some(&pair[1]))?;
    let other = tests.iter().filter_map(|test| test.model_filename.as_ref()).find(|name| *name != passed)?;
    let message = format!("`-m {passed}` was passed, and the tool says `model_filename` {other:?}");
    Some(Issue::new(Code::ExecutedDiffers, message))
}

/// `None` where that can't be told.
fn is_same(form: Form, passed: &str, executed: &Value) -> Option<bool> {
    let text = match executed {
        Value::Bool(is) => i64::from(*is).to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    match form {
        Whole => Some(passed.parse::<i64>().ok()? == text.parse::<i64>().ok()?),
        Switch => Some(switch(passed)? == switch(&text)?),
        Word => (!passed.contains(',')).then(|| passed.trim().eq_ignore_ascii_case(text.trim())),
    }
}

fn switch(word: &str) -> Option<i8> {
    match word {
        "on" | "enabled" | "true" | "1" => Some(1),
        "off" | "disabled" | "false" | "0" => Some(0),
        "auto" | "-1" => Some(-1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    fn test(model_filename: &str) -> Test {
        let (build_commit, model_filename, settings) = ("x".to_owned(), Some(model_filename.to_owned()), IndexMap::new());
        let (n_prompt, samples_ns, avg_ts) = (1, vec![1], 1.0);
        Test { build_commit, build_number: 1, n_prompt, n_gen: 0, n_depth: 0, samples_ns, avg_ts, model_size: None, model_filename, settings }
    }

    fn said(option: &str, passed: &str, settings: Value) -> Option<String> {
        let settings = serde_json::from_value(settings).expect("an object");
        let test = Test { settings, ..test("m.gguf") };
        let tests = [test.clone(), test];
        differs(&[(option.to_owned(), passed.to_owned())].into(), &tests).map(|issue| issue.message)
    }

    #[test]
    fn a_value_that_comes_back_as_another_is_told_with_both_and_the_tools_own_spelling_is_none() {
        for (option, passed, field, executed, differs) in [
            ("-t", "4", "n_threads", json!(4), false),
            ("-t", "4", "n_threads", json!(2), true),
            ("--threads", "4", "n_threads", json!("4"), false),
            ("-b", "512", "n_batch", json!(2048), true),
            ("--n_gpu_layers", "9", "n_gpu_layers", json!(0), true),
            ("-ub", "512", "n_ubatch", json!(256), true),
            ("-ctk", "q8_0", "type_k", json!("q8_0"), false),
            ("-ctk", "q8_0", "type_k", json!("f16"), true),
            ("-ctv", "Q4_0", "type_v", json!("q4_0"), false),
            ("-ngl", "99", "n_gpu_layers", json!(99), false),
            ("-ngl", "99", "n_gpu_layers", json!(0), true),
            ("-ngl", "-1", "n_gpu_layers", json!(-1), false),
            ("-ngl", "auto", "n_gpu_layers", json!(-1), false),
            ("-fa", "on", "flash_attn", json!(1), false),
            ("-fa", "on", "flash_attn", json!(true), false),
            ("-fa", "1", "flash_attn", json!(false), true),
            ("-fa", "auto", "flash_attn", json!(-1), false),
            ("-fa", "off", "flash_attn", json!(-1), true),
            ("-nkvo", "1", "no_kv_offload", json!(true), false),
            ("-nkvo", "1", "no_kv_offload", json!(false), true),
            ("-nopo", "0", "no_op_offload", json!(0), false),
            ("-dev", "CUDA0/CUDA1", "devices", json!("CUDA0/CUDA1"), false),
            ("-dev", "CUDA0", "devices", json!("auto"), true),
            ("-sm", "row", "split_mode", json!("layer"), true),
            ("-lm", "mmap+mlock", "load_mode", json!("mmap+mlock"), false),
            // Lists and ranges make several tests, and what a build doesn't say is no other value.
            ("-t", "1,2", "n_threads", json!(1), false),
            ("-t", "1-4", "n_threads", json!(1), false),
            ("-ctk", "f16,q8_0", "type_k", json!("f16"), false),
            ("-t", "4", "threads", json!(2), false),
            ("-t", "4", "n_threads", json!(null), false),
            ("-ts", "1/1", "tensor_split", json!("0.50"), false),
            ("-fitt", "100", "fit_target", json!(0), true),
            ("--fit-ctx", "512", "fit_min_ctx", json!(512), false),
        ] {
            let words = said(option, passed, json!({ field: executed }));
            assert_eq!(words.is_some(), differs, "{option} {passed} {executed}: {words:?}");
            if let Some(words) = words {
                assert_eq!(words, format!("`{option} {passed}` was passed, and the tool says `{field}` {executed}"));
            }
        }
    }

    #[test]
    fn of_a_command_line_what_the_tool_repeats_is_kept() {
        let argv: Vec<String> = "llama-bench -m x -p 512 -t 4 -r 3 --progress -ngl -1 -v -fa on".split(' ').map(str::to_owned).collect();
        let expected = [("-t", "4"), ("-ngl", "-1"), ("-fa", "on")].map(|(option, value)| (option.to_owned(), value.to_owned()));
        assert_eq!(passed(&argv), IndexMap::from(expected));
    }

    #[test]
    fn another_model_than_the_one_that_was_passed_is_told_by_its_path() {
        let said = |path: &str, test: Test| {
            let argv = ["llama-bench", "-m", path, "-p", "1"].map(str::to_owned);
            other_model(&argv, &[test.clone(), test]).map(|issue| issue.message)
        };
        assert_eq!(said("/m/q.gguf", test("/m/q.gguf")), None);
        let other = said("/m/q.gguf", test("/other/m/q.gguf")).unwrap();
        assert_eq!(other, "`-m /m/q.gguf` was passed, and the tool says `model_filename` \"/other/m/q.gguf\"");
        assert_eq!(said("/m/q.gguf", Test { model_filename: None, ..test("") }), None);
    }
}
