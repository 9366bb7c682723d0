//! Whole campaigns with llama.cpp's real server.

use crate::lab::{Lab, User, copy_executable, for_each_user};
use crate::llama;
use isotherm_wire::served::ServeOutput;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

const CAMPAIGN: &str = "campaign: c
devices: { here: { local: {}, builds: { own: { llama_server: SERVER } } } }
models: { m: { path: m.gguf } }
defaults: { retry_contaminated: 0, repetitions: 1, timeout: 120s, startup_timeout: 60s, prepare: { settle: 0ms } }
matrix:
  - devices: here
    backend: llama-server
    model: m
    threads: 1
";

/// Beginning of a server that has no help to show.
const ASKED: &str = "#!/bin/sh\ncase $1 in --*) exit;; esac\n";

/// A campaign of these lines, with this program as its server.
fn lab_with(server: &str, block: &str) -> Lab {
    lab_of(User::Caller, server, block)
}

fn lab_of(user: User, server: &str, block: &str) -> Lab {
    let lab = Lab::of(user);
    fs::copy(llama::model("tiny-q8_0.gguf"), lab.path("m.gguf")).unwrap();
    let lines: String = block.lines().map(|line| format!("    {}\n", line.trim_start())).collect();
    lab.write("c.yaml", format!("{}{lines}", CAMPAIGN.replace("SERVER", server)));
    lab
}

/// The same with the real server; `None` where there is none.
fn lab(block: &str) -> Option<Lab> {
    Some(lab_with(llama::tool("llama-server")?.to_str().unwrap(), block))
}

fn failed(lab: &Lab) -> (String, String) {
    lab.run(&["run", "c.yaml"]).expect(1);
    let record = lab.only_record("c");
    assert_eq!((&record["status"], &record["validity"]), (&json!("failed"), &json!("invalid")));
    assert_eq!(lab.pids_of("llama-server"), [] as [i32; 0], "a server is left");
    (record["reason"].as_str().unwrap().to_owned(), record["message"].as_str().unwrap().to_owned())
}

/// What asked the server, as it stands in the record.
fn output(record: &Value) -> ServeOutput {
    serde_json::from_str(record["raw"]["stdout"]["head"]["data"].as_str().unwrap()).unwrap()
}

#[test]
fn a_server_is_started_asked_and_stopped_and_every_request_is_timed() {
    let Some(lab) = lab("n_prompt: 48\nn_gen: 16\niterations: 3\nconcurrency: [1, 2]\nslo: { ttft: 60s, tpot: 60s }") else { return };
    // Of whoever starts isotherm, a server has no variables.
    lab.run_with(&["run", "c.yaml"], &[("LLAMA_ARG_API_PREFIX", "/elsewhere"), ("LLAMA_API_KEY", "secret")]).expect(0);
    assert_eq!(lab.pids_of("llama-server"), [] as [i32; 0], "a server is left");
    let records = lab.records("c");
    assert_eq!(records.len(), 2);
    for (path, record) in &records {
        assert_eq!((&record["status"], &record["validity"], &record["issues"]), (&json!("ok"), &json!("valid"), &json!([])), "{record}");
        let clients = record["ids"]["point"]["axes"]["concurrency"].as_u64().unwrap() as usize;
        let output = output(record);
        assert_eq!((output.warmup.len(), output.requests.len(), output.wait_status), (clients, 3 * clients, Some(0)));
        for request in output.warmup.iter().chain(&output.requests) {
            // One token is one event of this model, and none comes before the prompt has been computed.
            assert_eq!((request.content_ns.len(), request.prompt_tokens, request.tokens, request.truncated), (16, Some(48), Some(16), false));
            let timings = request.timings.unwrap();
            assert_eq!((timings.prompt_n, timings.cache_n), (48, Some(0)));
            assert!(request.content_ns[0] as f64 / 1e6 >= timings.prompt_ms, "{request:?}");
            assert!(request.content_ns.is_sorted() && request.content_ns[15] <= request.end_ns);
        }
        let metric = |name: &str| &record["metrics"][name];
        for name in ["ttft_ms", "tpot_ms", "e2e_ms", "server_prefill_tps", "server_decode_tps"] {
            assert_eq!((&metric(name)["n"], metric(name)["value"].as_f64().unwrap() > 0.0), (&json!(3 * clients), true), "{name}");
        }
        assert_eq!(metric("itl_ms")["samples"].as_array().unwrap().len(), 3 * clients * 15);
        let goodput = metric("goodput_rps");
        assert_eq!((&goodput["label"], goodput["value"].as_f64().unwrap() > 0.0), (&json!("ttft ≤ 60000 ms, tpot ≤ 60000 ms"), true));
        // The server alone: where looks say more than the kernel, its counters had not caught up.
        let (peak, of_server) = (metric("peak_rss_bytes")["value"].as_f64().unwrap(), output.peak_rss_bytes.unwrap() as f64);
        assert!(peak >= of_server && peak < of_server + 2e6, "{peak} {of_server}");
        assert!(record["time"]["load_ms"].as_f64().unwrap() > 0.0);
        assert_eq!(record["iterations"]["rounds_ns"].as_array().unwrap().len(), clients);

        // What the model's file says, and what the server says of it.
        let header = &record["workload"]["model"]["header"]["gguf"];
        assert_eq!([&header["parameters"], &header["weight_bytes"]], [&record["executed"]["n_params"], &record["executed"]["model_size"]]);
        assert_eq!([&header["context_length"], &header["vocabulary"]], [&record["executed"]["n_ctx_train"], &record["executed"]["n_vocab"]]);
        assert_eq!((&record["executed"]["slots"], &record["executed"]["n_threads"]), (&json!(clients), &json!(1)));
        assert_eq!((&record["ids"]["identity"]["spec"]["n_ctx"], &record["requested"]["n_ctx"]), (&json!(256 * clients), &json!(256 * clients)));
        let argv: Vec<&str> = record["backend"]["executed"]["argv"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
        assert!(argv[0].ends_with("llama-server") && argv.windows(2).any(|pair| pair == ["--port", "0"]), "{argv:?}");
        assert!(fs::metadata(path).is_ok());
    }
    assert!(lab.run(&["run", "c.yaml"]).expect(0).stderr().contains("nothing to do"));
    for look in ["report", "status", "verify", "reparse"] {
        lab.run(&[look, "results/c"]).expect(0);
    }
    // Paths of this machine stand in texts and in keys, of what the program said of itself among them.
    lab.run(&["export", "results/c", "--public", "public"]).expect(0);
    let told = |path: &PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap()).contains(lab.path("").file_name().unwrap().to_str().unwrap());
    let telling: Vec<PathBuf> = lab.all_files().into_iter().filter(|path| path.starts_with(lab.path("public")) && told(path)).collect();
    assert_eq!(telling, [] as [PathBuf; 0]);
    // What counts as served well is a way of reading, and needs no run.
    lab.write("c.yaml", lab.read("c.yaml").replace("slo: { ttft: 60s, tpot: 60s }", "slo: { ttft: 0ms }"));
    lab.run(&["run", "c.yaml"]).expect(0);
    let read_again = lab.records("c");
    assert!(read_again.iter().zip(&records).all(|((_, now), (_, before))| now["ids"]["run_id"] == before["ids"]["run_id"]));
    assert!(read_again.iter().all(|(_, record)| record["metrics"]["goodput_rps"]["value"] == 0.0));
}

/// Of every request both times are of itself, so that a machine that is slow or busy makes both of them longer.
#[test]
fn the_time_to_first_token_is_the_servers_time_for_the_prompt_and_little_more() {
    /// Less is too short to say so of, ms.
    const LONG_ENOUGH: f64 = 50.0;
    for n_prompt in [512, 1024, 2048] {
        let Some(lab) = lab(&format!("n_prompt: {n_prompt}\nn_gen: 4\niterations: 5")) else { return };
        llama::generated(&lab.path("m.gguf"), 512, 12);
        lab.run(&["run", "c.yaml"]).expect(0);
        let requests = output(&lab.only_record("c")).requests;
        let both: Vec<(f64, f64)> = requests.iter().map(|request| (request.content_ns[0] as f64 / 1e6, request.timings.unwrap().prompt_ms)).collect();
        eprintln!("{n_prompt} tokens, ttft and prompt_ms: {both:?}");
        let median = |values: Vec<f64>| isotherm::stats::median(&values).unwrap();
        if median(both.iter().map(|(_, prompt)| *prompt).collect()) > LONG_ENOUGH {
            let share = median(both.iter().map(|(ttft, prompt)| (ttft - prompt) / prompt).collect());
            assert!((0.0..=0.05).contains(&share), "{share}: {both:?}");
            return;
        }
    }
    panic!("no prompt took this machine more than {LONG_ENOUGH} ms: it wants a larger model");
}

#[test]
fn a_single_token_is_served_well_and_says_nothing_of_decode() {
    let Some(lab) = lab("n_prompt: 32\nn_gen: 1\niterations: 2\nslo: { tpot: 60s }") else { return };
    lab.run(&["run", "c.yaml"]).expect(0);
    let record = lab.only_record("c");
    assert_eq!((&record["status"], &record["validity"], &record["issues"]), (&json!("ok"), &json!("valid"), &json!([])), "{record}");
    for name in ["server_decode_tps", "tpot_ms"] {
        assert_eq!(record["metrics"][name]["value"], json!(null), "{name}");
    }
    assert!(record["metrics"]["goodput_rps"]["value"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_context_that_all_requests_share_is_what_was_asked_for_too() {
    for (flag, n_ctx) in [("-kvu: true", 512), ("-kvu: true, --kv-unified-per-slot: \"300\"", 300), ("-no-kvu: true", 256)] {
        let Some(lab) = lab(&format!("n_prompt: 32\nn_gen: 4\niterations: 1\nconcurrency: 2\nflags: {{ {flag} }}")) else { return };
        lab.run(&["run", "c.yaml"]).expect(0);
        let record = lab.only_record("c");
        assert_eq!((&record["validity"], &record["issues"]), (&json!("valid"), &json!([])), "{flag}: {record}");
        let executed = &record["executed"];
        assert_eq!((&executed["n_ctx_of_a_request"], &executed["kv_unified"]), (&json!(n_ctx), &json!(!flag.contains("no"))), "{flag}");
    }
}

#[test]
fn a_script_that_starts_the_server_with_other_numbers_is_told() {
    let Some(real) = llama::tool("llama-server") else { return };
    for (options, field, words) in [
        ("-np 1", ("slots", 1), "`-np 2` was passed, and the server has 1 slots"),
        ("-t 3", ("n_threads", 3), "`-t 1` was passed, and the server says `n_threads` 3"),
        (
            "-c 1024",
            ("n_ctx_of_a_request", 512),
            "`-c 512` was passed for 2 requests at a time, and the server has 512 tokens of context for each, of its own",
        ),
    ] {
        let lab = lab_with("./server.sh", "n_prompt: 32\nn_gen: 4\niterations: 1\nconcurrency: 2");
        lab.write("server.sh", format!("{ASKED}exec {} \"$@\" {options}\n", real.display()));
        lab.run(&["run", "c.yaml"]);
        let record = lab.only_record("c");
        assert_eq!(
            (&record["status"], &record["validity"], &record["executed"][field.0]),
            (&json!("ok"), &json!("invalid"), &json!(field.1)),
            "{record}"
        );
        let issue = &record["issues"][0];
        assert!(issue["code"] == "executed_differs" && issue["message"].as_str().unwrap().starts_with(words), "{issue}");
    }
}

#[test]
fn a_server_whose_own_numbers_cannot_be_true_is_told_and_told_again_from_what_is_stored() {
    const LINE: &str = "PROMPT_S, TOKEN_S, EVENTS_OF_TOKEN, TIMINGS = 0.5, 0.05, 1, {}";
    for (prompt_ms, predicted_ms, events, codes) in [
        (0.001, 0.001, 1, vec![]),
        (99999.0, 0.5, 1, vec!["window_outside_run"]),
        (0.001, 99999.0, 2, vec!["window_outside_run", "samples_differ"]),
        (0.001, 0.001, 2, vec!["samples_differ"]),
    ] {
        let lab = lab_with("./server.py", "n_prompt: 32\nn_gen: 4\niterations: 2\nconcurrency: 2");
        let timings = json!({"timings": {"prompt_n": 32, "predicted_n": 4, "prompt_ms": prompt_ms, "predicted_ms": predicted_ms}});
        let server = include_str!("../support/server.py");
        assert!(server.contains(LINE));
        lab.write("server.py", server.replace(LINE, &format!("PROMPT_S, TOKEN_S, EVENTS_OF_TOKEN, TIMINGS = 0, 0, {events}, {timings}")));
        let look = |args: &[&str]| {
            lab.run(args);
            let record = lab.only_record("c");
            let said = record["issues"].as_array().unwrap().iter().map(|issue| issue["code"].as_str().unwrap());
            let of_server: Vec<&str> = said.filter(|code| ["window_outside_run", "samples_differ"].contains(code)).collect();
            assert_eq!((&record["status"], record["validity"] == "invalid", &of_server), (&json!("ok"), !codes.is_empty(), &codes), "{record}");
            record
        };
        let record = look(&["run", "c.yaml"]);
        assert_eq!(look(&["reparse", "results/c"]), record);
    }
}

/// Builds for the CPU alone are what these tests have.
#[test]
fn a_gpu_that_is_asked_for_by_a_variable_or_a_script_and_is_not_there_is_told() {
    let Some(real) = llama::tool("llama-server") else { return };
    for (more, script, words) in [
        ("env: { LLAMA_ARG_N_GPU_LAYERS: \"99\" }", "", Some("`LLAMA_ARG_N_GPU_LAYERS 99` asks for a GPU")),
        ("", " -ngl 99", Some("something beside `flags` and `env` says how many layers a GPU gets")),
        ("flags: { -ngl: \"0\" }", "", None),
        ("flags: { -ngl: \"0\" }\nenv: { LLAMA_ARG_N_GPU_LAYERS: \"99\" }", "", None),
        ("env: { LLAMA_ARG_N_GPU_LAYERS: \"0\" }", "", None),
    ] {
        let lab = lab_with("./server.sh", &format!("n_prompt: 32\nn_gen: 4\niterations: 1\n{more}"));
        lab.write("server.sh", format!("{ASKED}exec {} \"$@\"{script}\n", real.display()));
        lab.run(&["run", "c.yaml"]);
        let record = lab.only_record("c");
        let issues = record["issues"].as_array().unwrap();
        let told = issues.iter().find(|issue| issue["code"] == "cpu_fallback").map(|issue| issue["message"].as_str().unwrap());
        assert!(record["status"] == "ok" && told.map(|told| told.starts_with(words.unwrap_or("?"))) == words.map(|_| true), "{more}: {record}");
    }
}

#[test]
fn an_ordinary_users_server_is_known_by_its_sockets_too() {
    let Some(real) = llama::tool("llama-server") else { return };
    for_each_user(|user| {
        let lab = lab_of(user, "./llama-server", "n_prompt: 32\nn_gen: 4\niterations: 1");
        copy_executable(&real, &lab.path("llama-server"));
        lab.run(&["run", "c.yaml"]).expect(0);
        let record = lab.only_record("c");
        assert_eq!((&record["status"], &record["validity"]), (&json!("ok"), &json!("valid")), "{user:?}: {record}");
        let level = record["device"]["containment"]["level"].as_str().unwrap();
        eprintln!("{user:?}: {level}");
        assert!(user == User::Caller || level == "subreaper", "{level}");
    });
}

#[test]
fn a_log_that_is_longer_than_a_pipe_holds_up_nobody_and_proxies_are_not_asked() {
    let proxy = "http_proxy: \"http://127.0.0.1:9\", HTTP_PROXY: \"http://127.0.0.1:9\", ALL_PROXY: \"http://127.0.0.1:9\"";
    let Some(lab) = lab(&format!("n_prompt: 32\nn_gen: 256\niterations: 4\nflags: {{ -lv: \"5\" }}\nenv: {{ {proxy} }}")) else { return };
    lab.run(&["run", "c.yaml"]).expect(0);
    let record = lab.only_record("c");
    assert_eq!((&record["status"], &record["validity"]), (&json!("ok"), &json!("valid")));
    assert!(record["raw"]["stderr"]["bytes"].as_u64().unwrap() > 64 << 10, "{}", record["raw"]["stderr"]["bytes"]);
    assert_eq!(record["backend"]["executed"]["env"]["http_proxy"], "http://127.0.0.1:9");
}

#[test]
fn what_the_server_refuses_or_dies_of_is_told_in_its_words() {
    let Some(real) = llama::tool("llama-server") else { return };
    let real = real.to_str().unwrap();
    let shorter = |lab: &Lab| {
        let model = fs::read(lab.path("m.gguf")).unwrap();
        lab.write("m.gguf", &model[..model.len() / 2]);
    };
    let small = "n_prompt: 32\nn_gen: 4\niterations: 1\n";
    type Spoil<'a> = &'a dyn Fn(&Lab);
    let cases: [(&str, Spoil<'_>, &str, &str); 4] = [
        ("", &shorter, "exit_code", "data is not within the file bounds, model is corrupted or incomplete"),
        ("", &|lab| _ = lab.write("m.gguf", "not a model"), "exit_code", "invalid magic characters"),
        ("", &|lab| fs::remove_file(lab.path("m.gguf")).unwrap(), "model_missing", "No such file or directory"),
        ("flags: { -ctk: nonsense }", &|_| {}, "exit_code", "Unsupported cache type: nonsense"),
    ];
    for (more, spoil, reason, words) in cases {
        let lab = lab_with(real, &format!("{small}{more}"));
        spoil(&lab);
        let (said, message) = failed(&lab);
        assert!(said == reason && message.contains(words), "{said}: {message}");
    }
}

#[test]
fn a_server_without_the_context_for_a_request_is_asked_for_nothing() {
    // The tool makes a context of no fewer than 256 tokens, and of no more than the model was trained for.
    for (block, words) in [
        (
            "n_prompt: 240\nn_gen: 16\nn_ctx: 256",
            "257 tokens of context (240 of prompt, 16 generated, and 1), and the server has 256 for it: give more",
        ),
        ("n_prompt: 300\nn_gen: 16\nconcurrency: 2\nn_ctx: 512", "and the server has 256 for it: give more"),
        (
            "n_prompt: 2000\nn_gen: 48",
            "2049 tokens of context (2000 of prompt, 48 generated, and 1), and the server has 2048 for it: the model was trained for",
        ),
    ] {
        let Some(lab) = lab(block) else { return };
        let (reason, message) = failed(&lab);
        assert!(reason == "precondition" && message.contains(words), "{reason}: {message}");
        let output = output(&lab.only_record("c"));
        assert!(output.ready_ns.is_some() && output.warmup.is_empty() && output.prompt_sha256.is_none(), "{output:?}");
    }
}

#[test]
fn requests_that_fill_a_multiple_of_the_contexts_step_and_all_of_the_trained_one_are_answered() {
    for block in ["n_prompt: 240\nn_gen: 16\niterations: 1\nconcurrency: 2", "n_prompt: 2000\nn_gen: 47\niterations: 1\nwarmup: 0"] {
        let Some(lab) = lab(block) else { return };
        lab.run(&["run", "c.yaml"]).expect(0);
        let record = lab.only_record("c");
        assert_eq!((&record["status"], &record["validity"], &record["issues"]), (&json!("ok"), &json!("valid"), &json!([])), "{block}: {record}");
    }
}

#[test]
fn a_server_without_the_model_that_was_asked_for_is_not_measured() {
    let Some(real) = llama::tool("llama-server") else { return };
    let small = "n_prompt: 32\nn_gen: 4\niterations: 1";
    let started_as = |arguments: &str| {
        let lab = lab_with("./server.sh", small);
        fs::copy(llama::model("tiny-f16.gguf"), lab.path("other.gguf")).unwrap();
        lab.write("server.sh", format!("{ASKED}exec {} --host 127.0.0.1 --port 0 {arguments}\n", real.display()));
        failed(&lab)
    };
    // Nothing to load is no error to it: it waits for somebody to name a model.
    let (reason, message) = started_as("--offline");
    assert!(reason == "model_missing" && message.starts_with("the server is ready without a model"), "{reason}: {message}");
    let (reason, message) = started_as("-m other.gguf -t 1");
    assert!(reason == "model_missing" && message.ends_with("another model than the one asked for: other.gguf"), "{reason}: {message}");
}

#[test]
fn a_server_that_is_never_ready_is_given_up_and_nothing_of_it_stays() {
    let lab = lab_with("./server.sh", "startup_timeout: 1500ms\nn_prompt: 32\nn_gen: 4");
    lab.write("server.sh", format!("{ASKED}echo loading >&2\nexec sleep 1000\n"));
    let (reason, message) = failed(&lab);
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("timeout", "the server was not ready within its start-up time-out of 1s 500ms (it listens on no port): loading")
    );
    assert_eq!(lab.pids_of("sleep"), [] as [i32; 0]);
    // Nothing is as small as that: neither looks nor the kernel's peak may have who asks it among what it holds.
    let context = &lab.only_record("c")["context"];
    let (peak, of_both) = (context["peak_rss"]["bytes"].as_u64().unwrap(), context["usage"]["max_rss_bytes"].as_u64().unwrap());
    assert!(peak > 0 && peak < of_both, "{peak} {of_both}");
}

#[test]
fn an_option_that_the_build_has_not_is_refused_before_anything_runs() {
    let Some(lab) = lab("n_prompt: 32\nn_gen: 4\nflags: { --flash-attention: \"on\" }") else { return };
    let said = lab.run(&["run", "c.yaml"]).expect(2).stderr();
    assert!(said.contains("has no option `--flash-attention`") && said.contains("`--flash-attn`"), "{said}");
    assert!(lab.records("c").is_empty());
}

#[test]
fn a_campaign_says_neither_where_the_server_listens_nor_what_a_key_says() {
    for (block, said) in [
        ("flags: { --port: \"8080\" }", "`--port` is no option for `flags` of `llama-server`"),
        ("flags: { -np: \"2\" }", "`-np` is no option for `flags` of `llama-server`"),
        ("flags: { --api-prefix: /v }", "`--api-prefix` is no option for `flags` of `llama-server`"),
        ("flags: { --embeddings: true }", "it has to generate"),
        ("flags: { --log-disable: true }", "its log is read as it comes"),
        ("n_gen: 0", "has 512 tokens of prompt and generates 0"),
        ("slo: {}", "`slo` says nothing"),
        ("n_gen: 1000\niterations: 1000", "generates 1001000 tokens, and the time of each is kept, of 500000 at most"),
        ("build: own\ndepth: 4", "`depth`"),
    ] {
        let plan = lab_with("./server.sh", block).run(&["plan", "c.yaml"]).expect(2);
        assert!(plan.stderr().contains(said), "{}", plan.stderr());
    }
}
