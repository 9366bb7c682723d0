//! Reading numbers from what a program left: what is taken, and what is refused.

use crate::kit::{Bench, issues, text};
use isotherm::digest::sha256_hex;
use isotherm::store::record::{RawStream, Record};
use isotherm::store::seal;
use isotherm::store::sidecar;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const SCORE: &str = "score: { from: stdout_last_line, json: /score, unit: points, better: higher }";

/// The run's metric `score`.
fn score(bench: &Bench) -> Value {
    bench.run(&[]).expect(0);
    bench.record()["metrics"]["score"].clone()
}

/// The run fails for what it can't read, and says what that was.
#[track_caller]
fn unreadable(bench: &Bench, what: &str) {
    let ran = bench.run(&[]).expect(1);
    let record = bench.record();
    assert_eq!((&record["status"], &record["reason"]), (&"failed".into(), &"parse".into()));
    let message = record["message"].as_str().unwrap();
    assert!(message.starts_with("metric `score`: ") && message.contains(what), "{what:?} is not in {message:?}");
    assert!(ran.stdout().contains("failed: parse: metric `score`: "), "{}", ran.stdout());
    assert_eq!(record["metrics"]["score"]["value"], Value::Null);
    assert!(record["metrics"]["score"]["omitted_reason"].as_str().unwrap().contains(what));
}

#[test]
fn one_number_of_the_last_line() {
    let bench = Bench::reading("echo '{\"score\": 1}'; echo '{\"score\": 2.25}'; echo; echo '  '", SCORE);
    let score = score(&bench);
    assert_eq!((&score["value"], &score["n"], &score["unit"], &score["better"]), (&2.25.into(), &1.into(), &"points".into(), &"higher".into()));
    assert!(score.get("samples").is_none());
}

#[test]
fn an_array_is_samples_and_its_median() {
    let score = score(&Bench::reading("echo '{\"score\": [4, 1, 2, 3]}'", SCORE));
    assert_eq!((&score["value"], &score["n"], &score["samples"]), (&2.5.into(), &4.into(), &json!([4.0, 1.0, 2.0, 3.0])));
    assert_eq!((&score["spread"]["min"], &score["spread"]["max"]), (&1.0.into(), &4.0.into()));
}

#[test]
fn a_pattern_takes_the_first_the_last_or_all_matches() {
    let rule = |name: &str, take: &str| format!("{name}: {{ from: stdout, regex: 'score: ([0-9.]+)', unit: p, better: higher{take} }}");
    let metrics = [rule("first", ", take: first"), rule("last", ", take: last"), rule("by_itself", ""), rule("all", ", take: all")].join(", ");
    let bench = Bench::reading("echo 'score: 1'; echo 'score: 5 score: 3'; echo score: none", &metrics);
    bench.run(&[]).expect(0);
    let record = bench.record();
    let values = ["first", "last", "by_itself", "all"].map(|name| record["metrics"][name]["value"].as_f64().unwrap());
    assert_eq!(values, [1.0, 3.0, 3.0, 3.0]);
    assert_eq!(record["metrics"]["all"]["samples"], json!([1.0, 5.0, 3.0]));
}

#[test]
fn stderr_is_read_as_well() {
    let score = score(&Bench::reading("echo 'took 12 ms' >&2", "score: { from: stderr, regex: 'took ([0-9]+) ms', unit: ms, better: lower }"));
    assert_eq!(score["value"], 12.0);
}

#[test]
fn what_isotherm_measures_itself_stands_beside_it() {
    let bench = Bench::reading("echo '{\"score\": 1}'", SCORE);
    bench.run(&[]).expect(0);
    let metrics = bench.record()["metrics"].clone();
    assert_eq!((&metrics["wall_s"]["unit"], &metrics["max_rss_bytes"]["unit"]), (&"s".into(), &"bytes".into()));
    assert!(metrics["wall_s"]["value"].as_f64().unwrap() > 0.0 && metrics["max_rss_bytes"]["value"].as_f64().unwrap() > 0.0);
}

#[test]
fn what_is_not_a_finite_number_is_refused() {
    let by_json = |value: &str| Bench::reading(&format!("echo '{{\"score\": {value}}}'"), SCORE);
    unreadable(&by_json("\"NaN\""), "NaN is not a finite number");
    unreadable(&by_json("\"inf\""), "inf is not a finite number");
    unreadable(&by_json("1e999"), "number out of range");
    unreadable(&by_json("[1, \"-inf\"]"), "-inf is not a finite number");
    unreadable(&by_json("NaN"), "is not JSON");
    unreadable(&by_json("null"), "null is not a number");
    unreadable(&by_json("true"), "true is not a number");
    unreadable(&by_json("\"fast\""), "\"fast\" is not a number");
    unreadable(&by_json("[]"), "an empty list");
}

#[test]
fn what_is_not_there_is_refused() {
    unreadable(&Bench::reading("echo '{\"scope\": 1}'", SCORE), "nothing at /score in the last line of stdout");
    unreadable(&Bench::reading("echo done", SCORE), "the last line of stdout is not JSON");
    unreadable(&Bench::reading("echo '{\"score\": 1}' >&2", SCORE), "stdout is empty");
    let pattern = "score: { from: stdout, regex: 'score: ([0-9]+)', unit: p, better: higher }";
    unreadable(&Bench::reading("echo score: none", pattern), "no match of `score: ([0-9]+)` in stdout");
}

#[test]
fn a_run_that_failed_keeps_its_own_reason() {
    let bench = Bench::reading("echo no license >&2; exit 4", SCORE);
    bench.run(&[]).expect(1);
    let record = bench.record();
    assert_eq!((&record["reason"], &record["message"]), (&"exit_code".into(), &"exit code 4: no license".into()));
}

const FILE: &str = "score: { from: \"file:out/score.txt\", regex: '([0-9]+)', unit: p, better: higher }";

#[test]
fn a_file_that_the_run_wrote_is_read_and_kept() {
    let bench = Bench::reading("mkdir -p out; echo 42 > out/score.txt", FILE);
    assert_eq!(score(&bench)["value"], 42.0);
    assert_eq!(text(&bench.record()["raw"]["files"]["out/score.txt"]), "42\n");
}

#[test]
fn a_file_from_before_the_run_is_not_taken() {
    let bench = Bench::reading("true", FILE);
    bench.lab.write("out/score.txt", "42");
    unreadable(&bench, "out/score.txt was not written by this run");
    assert_eq!(bench.record()["raw"]["files"]["out/score.txt"]["head"], Value::Null);
}

#[test]
fn a_file_of_the_warm_up_is_not_taken() {
    let bench = Bench::reading("if [ ! -e out ]; then mkdir out; echo 42 > out/score.txt; fi", FILE);
    bench.edit("c.yaml", "warmup: 0", "warmup: 1");
    unreadable(&bench, "out/score.txt was not written by this run");
}

#[test]
fn a_file_written_again_with_the_same_content_is_taken() {
    let bench = Bench::reading("mkdir -p out; echo 42 > out/score.txt", FILE);
    bench.lab.write("out/score.txt", "42\n");
    assert_eq!(score(&bench)["value"], 42.0);
}

#[test]
fn a_file_that_was_never_written_is_named() {
    unreadable(&Bench::reading("true", FILE), "out/score.txt: No such file or directory");
}

#[test]
fn output_that_is_not_utf_8_is_kept_byte_for_byte_and_still_read() {
    let bench =
        Bench::reading(r"printf 'caf\351\n\033[31mscore: 5\033[0m\n'", "score: { from: stdout, regex: 'score: ([0-9]+)', unit: p, better: higher }");
    assert_eq!(score(&bench)["value"], 5.0);
    let record = open(&bench);
    assert_eq!(content(&bench, &record.raw.stdout), b"caf\xe9\n\x1b[31mscore: 5\x1b[0m\n");
    assert_eq!(bench.record()["raw"]["stdout"]["head"]["encoding"], "base64");
}

#[test]
fn what_a_tool_says_cannot_take_over_the_terminal() {
    let bench = Bench::reading(r"printf 'boom \033]0;owned\007\n' >&2; exit 1", SCORE);
    let ran = bench.run(&[]).expect(1);
    let seen = ran.stdout() + &ran.stderr() + &bench.look(&["report"]).stdout() + &bench.look(&["status"]).stdout();
    assert!(seen.contains("boom") && !seen.contains('\x1b') && !seen.contains('\x07'), "{seen:?}");
}

/// The only record, its seal checked.
fn open(bench: &Bench) -> Record {
    let (path, _) = bench.lab.records("c").remove(0);
    seal::open(&fs::read(path).unwrap()).unwrap()
}

/// Kept bytes of a stream, wherever they are.
fn content(bench: &Bench, stream: &RawStream) -> Vec<u8> {
    match &stream.sidecar {
        Some(file) => {
            let (path, _) = bench.lab.records("c").remove(0);
            zstd::decode_all(&sidecar::read(path.parent().unwrap(), file).unwrap()[..]).unwrap()
        }
        None => sidecar::decode(stream.head.as_ref().unwrap()).unwrap(),
    }
}

#[test]
fn of_a_hundred_megabytes_both_ends_are_kept_and_all_are_hashed() {
    const MIDDLE: usize = 100_000_000;
    const KEPT: usize = 1 << 20;
    let body = format!(r"printf 'first\377'; head -c {MIDDLE} /dev/zero | tr '\0' '\376'; printf '\375last\n'; echo 'score: 5' >&2");
    let bench = Bench::reading(&body, "score: { from: stderr, regex: 'score: ([0-9]+)', unit: p, better: higher }");
    assert_eq!(score(&bench)["value"], 5.0);
    let mut all = b"first\xff".to_vec();
    all.resize(all.len() + MIDDLE, 0xfe);
    all.extend_from_slice(b"\xfdlast\n");

    let record = open(&bench);
    let stdout = &record.raw.stdout;
    assert_eq!((stdout.bytes, &stdout.sha256), (all.len() as u64, &sha256_hex(&all)));
    assert_eq!(stdout.kept_head_bytes, Some(KEPT as u64));
    let kept = content(&bench, stdout);
    assert!(kept == [&all[..KEPT], &all[all.len() - KEPT..]].concat(), "both ends, byte for byte");
    let (path, _) = bench.lab.records("c").remove(0);
    assert!(fs::metadata(path).unwrap().len() < 64 << 10, "the record itself stays small");
    bench.look(&["verify"]).expect(0);
}

#[test]
fn a_number_is_not_looked_for_in_an_output_whose_middle_is_gone() {
    let body = "echo 'score: 5'; head -c 5000000 /dev/zero";
    unreadable(&Bench::reading(body, "score: { from: stdout, regex: 'score: ([0-9]+)', unit: p, better: higher }"), "only the ends were kept");
    let bench = Bench::reading("head -c 5000000 /dev/zero; echo; echo '{\"score\": 5}'", SCORE);
    assert_eq!(score(&bench)["value"], 5.0, "the last line is there");
}

fn digested(body: &str) -> Bench {
    let bench = Bench::one("argv: [./bench.sh]\nrepetitions: 3\nsuccess: { output_digest: { json: /tokens } }");
    bench.script("bench.sh", body);
    bench
}

#[test]
fn the_same_answer_in_every_repetition_is_valid() {
    let bench = digested("echo '{\"tokens\": [1, 2], \"time\": '$(wc -l < count)'}'");
    bench.run(&[]).expect(0);
    let digests: Vec<Value> = bench.lab.records("c").iter().map(|(_, r)| r["workload"]["output_digest"]["value"].clone()).collect();
    assert!(digests.len() == 3 && digests.iter().all(|d| *d == digests[0] && d.is_string()), "{digests:?}");
}

#[test]
fn another_answer_in_one_repetition_makes_it_invalid() {
    let bench = digested("if [ -e flaky ] && [ $(wc -l < count) = 2 ]; then echo '{\"tokens\": [1, 3]}'; else echo '{\"tokens\": [1, 2]}'; fi");
    bench.lab.write("flaky", "");
    let ran = bench.run(&[]).expect(1);
    assert!(ran.stdout().contains("output_differs"), "{}", ran.stdout());
    let records = bench.lab.records("c");
    let states: Vec<&str> = records.iter().map(|(_, r)| r["validity"].as_str().unwrap()).collect();
    assert_eq!(states, ["valid", "invalid", "valid"]);
    assert_eq!(issues(&records[1].1), ["output_differs"]);
    bench.look(&["status"]).expect(1);
    bench.ran();

    let again = bench.run(&[]).expect(0);
    assert_eq!(bench.ran().len(), 1);
    assert!(again.stderr().contains("its record is invalid"), "{}", again.stderr());
    bench.look(&["verify"]).expect(0);
}

#[test]
fn answers_are_compared_from_the_first_night_on_where_a_library_is_known_only_afterwards() {
    let bench = digested("./lib/sleep 0.3; echo '{\"tokens\": ['$(wc -l < count)']}'");
    bench.edit("c.yaml", "repetitions: 3", "repetitions: 2");
    let sleep = ["/bin/sleep", "/usr/bin/sleep"].iter().find_map(|p| fs::read(p).ok()).unwrap();
    bench.lab.write("lib/sleep", sleep);
    fs::set_permissions(bench.lab.path("lib/sleep"), fs::Permissions::from_mode(0o755)).unwrap();
    let ran = bench.run(&[]).expect(1);
    assert!(ran.stdout().contains("output_differs"), "{}", ran.stdout());
}

#[test]
fn an_answer_that_cannot_be_found_fails_the_run() {
    let bench = digested("echo '{}'");
    bench.run(&[]).expect(1);
    let (_, record) = bench.lab.records("c").remove(0);
    assert_eq!(record["reason"], "parse");
    assert!(record["message"].as_str().unwrap().starts_with("output digest: nothing at /tokens"), "{record:#}");
}

#[test]
fn a_pipe_in_the_place_of_a_file_holds_nobody() {
    let bench = Bench::one("argv: [./bench.sh]\nmetrics: { v: { from: 'file:out.txt', regex: '([0-9]+)', unit: x, better: lower } }");
    bench.script("bench.sh", "rm -f out.txt; mkfifo out.txt");
    bench.run(&[]).expect(1);
    let record = bench.record();
    assert_eq!((&record["status"], &record["reason"]), (&"failed".into(), &"parse".into()));
    assert!(record["message"].as_str().unwrap().contains("not a regular file"), "{record:#}");
}

#[test]
fn thousands_of_samples_lie_beside_the_record() {
    let bench = Bench::one("argv: [./bench.sh]\nmetrics: { v: { from: stdout, regex: '([0-9]+)', take: all, unit: x, better: lower } }");
    bench.script("bench.sh", "seq 1 6000");
    bench.run(&[]).expect(0);
    let metric = bench.record()["metrics"]["v"].clone();
    assert_eq!((metric["n"].as_u64(), metric["value"].as_f64()), (Some(6000), Some(3000.5)));
    assert!(metric.get("samples").is_none() && metric["samples_sidecar"]["name"].is_string(), "{metric:#}");
    bench.look(&["verify"]).expect(0);
}
