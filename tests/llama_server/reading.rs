//! From what asked a server to a record, without a server: what requests make of numbers, and what makes them useless.

use isotherm::backend::output::Stream;
use isotherm::backend::{self, ParseSpec, RawOutput, Reading};
use isotherm::store::record::{LlamaServerAsked, Reason, Slo};
use isotherm_wire::served::{Request, ServeFailure, ServeOutput, ServerFacts, Timings};

/// A request that was sent at `sent_ms`, with content at these moments after it.
fn request(client: u32, sent_ms: u64, content_ms: &[u64], end_ms: u64) -> Request {
    let ns = |ms: &u64| ms * 1_000_000;
    let timings = Timings { cache_n: Some(0), prompt_n: 8, prompt_ms: 40.0, predicted_n: 4, predicted_ms: 20.0 };
    Request {
        client,
        sent_ns: ns(&sent_ms),
        content_ns: content_ms.iter().map(ns).collect(),
        first_tokens: Some(1),
        end_ns: ns(&end_ms),
        prompt_tokens: Some(8),
        tokens: Some(4),
        timings: Some(timings),
        truncated: false,
    }
}

fn read(requests: Vec<Request>, slo: Option<Slo>) -> Reading {
    let asked = LlamaServerAsked { n_prompt: 8, n_gen: 4, requests: requests.len() as u32, slo, ..LlamaServerAsked::default() };
    read_as(asked, ServeOutput { requests, ..ServeOutput::default() })
}

fn read_as(asked: LlamaServerAsked, output: ServeOutput) -> Reading {
    read_with(asked, output, "")
}

fn read_with(asked: LlamaServerAsked, output: ServeOutput, log: &str) -> Reading {
    let stream = |kept: Vec<u8>| Stream { bytes: kept.len() as u64, kept, ..Stream::default() };
    let (stdout, stderr) = (stream(serde_json::to_vec(&output).unwrap()), stream(log.as_bytes().to_vec()));
    backend::read(&ParseSpec::LlamaServer(asked), &RawOutput { stdout, stderr, ..RawOutput::default() }, 0)
}

#[test]
fn numbers_are_medians_over_requests_and_gaps_those_of_all() {
    let reading =
        read(vec![request(0, 0, &[50, 60, 80, 90], 92), request(0, 100, &[70, 80, 90, 100], 103), request(0, 210, &[90, 95, 99, 110], 112)], None);
    assert_eq!(reading.failure, None);
    let value = |name: &str| reading.metrics[name].value.unwrap();
    assert_eq!((value("ttft_ms"), value("e2e_ms"), value("itl_ms")), (70.0, 103.0, 10.0));
    // (92 − 50) ÷ 3, (103 − 70) ÷ 3, (112 − 90) ÷ 3.
    assert!((value("tpot_ms") - 11.0).abs() < 1e-9);
    assert_eq!((value("server_prefill_tps"), value("server_decode_tps")), (200.0, 200.0));
    assert_eq!((reading.metrics["ttft_ms"].n, reading.metrics["itl_ms"].n), (3, 9));
    assert_eq!(reading.metrics["ttft_ms"].samples, [50.0, 70.0, 90.0]);
    assert!(!reading.metrics.contains_key("goodput_rps"), "nothing is declared");
    // 12 tokens from 0 to 322 ms.
    assert!((value("served_tps") - 12.0 / 0.322).abs() < 1e-9);
    assert_eq!((reading.metrics["served_tps"].n, reading.metrics["served_tps"].spread.is_none()), (3, true));
}

#[test]
fn goodput_counts_what_keeps_every_limit_over_the_time_from_the_first_to_the_last() {
    let requests = || vec![request(0, 0, &[50, 60, 80, 90], 92), request(1, 0, &[70, 80, 90, 100], 100), request(0, 92, &[90, 95, 99, 105], 108)];
    let goodput = |ttft_ms, tpot_ms| read(requests(), Some(Slo { ttft_ms, tpot_ms })).metrics["goodput_rps"].value.unwrap();
    // From 0 to 200 ms.
    assert_eq!((goodput(Some(80.0), None), goodput(Some(90.0), None), goodput(Some(10.0), None)), (10.0, 15.0, 0.0));
    // Per token after the first: 14, 10, 6 ms.
    assert_eq!((goodput(None, Some(10.0)), goodput(Some(80.0), Some(10.0))), (10.0, 5.0));
}

#[test]
fn a_prompt_that_the_server_had_already_makes_the_record_invalid() {
    let mut requests = vec![request(0, 0, &[50], 92), request(0, 100, &[50], 92)];
    requests[1].timings = requests[1].timings.map(|timings| Timings { cache_n: Some(7), prompt_n: 1, ..timings });
    let reading = read(requests, None);
    let issue = &reading.issues[0];
    assert_eq!(
        (issue.code.as_str(), issue.message.as_str()),
        ("prompt_cached", "the server had up to 7 tokens of the prompt already, in 1 of 2 requests")
    );
}

#[test]
fn timings_of_another_number_of_tokens_than_the_prompt_has_make_the_record_invalid_too() {
    for cache_n in [Some(0), None] {
        let mut requests = vec![request(0, 0, &[50], 92), request(0, 100, &[50], 92)];
        requests[1].timings = requests[1].timings.map(|timings| Timings { cache_n, prompt_n: 1, ..timings });
        let issue = read(requests, None).issues.remove(0);
        assert_eq!(
            (issue.code.as_str(), issue.message.as_str()),
            ("prompt_cached", "the server's timings are those of 1 tokens of the prompt, which has 8, in 1 of 2 requests")
        );
    }
}

/// Codes and messages of what is wrong with these requests.
fn issues(requests: Vec<Request>) -> Vec<String> {
    read(requests, None).issues.iter().map(|issue| format!("{}: {}", issue.code.as_str(), issue.message)).collect()
}

#[test]
fn times_of_the_server_that_are_longer_than_its_request_make_the_record_invalid() {
    let none: [String; 0] = [];
    // 60 ms of the server's own.
    let taking = |end_us: u64| Request { end_ns: end_us * 1000, ..request(0, 0, &[50], 0) };
    assert_eq!(issues(vec![taking(61_000), taking(60_000), taking(59_950)]), none, "clocks are adjusted");
    assert_eq!(
        issues(vec![taking(61_000), taking(59_000), taking(58_000)]),
        ["window_outside_run: `prompt_ms` and `predicted_ms` are 60.000 ms together of a request that took 59.000 ms, in 2 of 3 requests"]
    );
    assert_eq!(issues(vec![Request { timings: None, ..taking(1) }]), none, "a build that tells none");
}

#[test]
fn more_events_with_content_than_tokens_make_the_record_invalid_and_fewer_are_parts_of_characters() {
    let none: [String; 0] = [];
    let with = |events: usize| request(0, 0, &[50, 60, 65, 70, 75, 80][..events], 92);
    assert_eq!(issues(vec![with(0), with(1), with(4)]), none);
    assert_eq!(
        issues(vec![with(4), with(5), with(6)]),
        ["samples_differ: 5 events with content came of a request with 4 tokens by the server's count, in 2 of 3 requests"]
    );
}

#[test]
fn a_single_token_has_no_rate_of_decode_and_keeps_any_limit_of_what_follows_it() {
    let asked = LlamaServerAsked { n_prompt: 8, n_gen: 1, requests: 1, slo: Some(Slo { ttft_ms: None, tpot_ms: Some(1.0) }), ..Default::default() };
    let mut one = request(0, 0, &[50], 100);
    one.tokens = Some(1);
    one.timings = one.timings.map(|timings| Timings { predicted_n: 1, predicted_ms: 0.001, ..timings });
    let reading = read_as(asked, ServeOutput { requests: vec![one], ..ServeOutput::default() });
    let why = |name: &str| reading.metrics[name].omitted_reason.clone().unwrap();
    assert_eq!(why("server_decode_tps"), "no token after the first in 1 of 1 requests");
    assert_eq!(why("tpot_ms"), "no token after the first event with content in 1 of 1 requests");
    assert_eq!((reading.metrics["server_prefill_tps"].value, reading.metrics["goodput_rps"].value), (Some(200.0), Some(10.0)));
}

#[test]
fn tokens_that_came_with_the_first_event_are_not_among_those_after_it() {
    let tpot = |first_tokens| {
        let reading = read(vec![Request { first_tokens, ..request(0, 0, &[50, 60], 92) }], None);
        reading.metrics["tpot_ms"].value
    };
    assert_eq!((tpot(Some(1)), tpot(Some(2)), tpot(Some(3)), tpot(Some(4))), (Some(14.0), Some(21.0), Some(42.0), None));
    assert_eq!(tpot(None), Some(14.0), "a version that kept no note of it");
}

#[test]
fn slots_and_context_are_held_against_what_was_passed() {
    let said_with = |log: &str, concurrency, n_ctx, slots, told, context_trained| {
        let asked = LlamaServerAsked { n_prompt: 8, n_gen: 4, requests: 1, concurrency: Some(concurrency), n_ctx: Some(n_ctx), ..Default::default() };
        let server = ServerFacts { slots, n_ctx: told, context_trained, ..ServerFacts::default() };
        let output = ServeOutput { requests: vec![request(0, 0, &[50], 92)], server: Some(server), ..ServeOutput::default() };
        read_with(asked, output, log).issues.iter().map(|issue| format!("{}: {}", issue.code.as_str(), issue.message)).collect::<Vec<_>>()
    };
    let said = |concurrency, n_ctx, slots, told, context_trained| said_with("", concurrency, n_ctx, slots, told, context_trained);
    let none: [String; 0] = [];
    assert_eq!(said(4, 1024, Some(4), Some(256), Some(2048)), none);
    // All of it for each, a part that is rounded up, no more than the model was trained for, a server that doesn't tell.
    assert_eq!(said(4, 1024, Some(4), Some(1024), Some(2048)), none);
    assert_eq!(said(4, 300, Some(4), Some(256), Some(2048)), none);
    assert_eq!(said(1, 4096, Some(1), Some(2048), Some(2048)), none);
    assert_eq!(said(4, 1024, None, None, None), none);
    assert_eq!(said(4, 1024, Some(1), Some(1024), None), ["executed_differs: `-np 4` was passed, and the server has 1 slots"]);
    let words =
        |told: u32| format!("executed_differs: `-c 1024` was passed for 2 requests at a time, and the server has {told} tokens of context for each");
    assert_eq!((said(2, 1024, Some(2), Some(256), None), said(2, 1024, Some(2), Some(4096), None)), (vec![words(256)], vec![words(4096)]));
    // Where the log tells whether it is shared, it is that and nothing between the two.
    let log = |unified: bool| format!("srv load_model: initializing, n_slots = 2, n_ctx_slot = 1, kv_unified = '{unified}'\n");
    for (unified, n_ctx, told, is_so) in [
        (false, 1024, 512, true),
        (false, 1000, 512, true),
        (false, 300, 256, true),
        (false, 8192, 2048, true),
        (false, 1024, 1024, false),
        (false, 1024, 768, false),
        (true, 1024, 1024, true),
        (true, 1000, 1024, true),
        (true, 8192, 2048, true),
        (true, 1024, 512, false),
        (true, 1024, 2048, false),
    ] {
        let said = said_with(&log(unified), 2, n_ctx, Some(2), Some(told), Some(2048));
        let how = if unified { ", which all share" } else { ", of its own" };
        let ends = format!("the server has {told} tokens of context for each{how}");
        assert!(if is_so { said.is_empty() } else { said.len() == 1 && said[0].ends_with(&ends) }, "{unified} {n_ctx} {told}: {said:?}");
    }
    // A limit of the server's own is none of `-c`.
    let limited = |seen: u32| format!("srv load_model: capping per-slot context ({seen}) to --kv-unified-per-slot (300)\n{}", log(true));
    assert_eq!(said_with(&limited(1024), 2, 1024, Some(2), Some(300), Some(2048)), none);
    assert_eq!(said_with(&limited(4096), 2, 1024, Some(2), Some(300), Some(2048)).len(), 1);
}

#[test]
fn what_has_no_value_says_why() {
    let reading = read(vec![request(0, 0, &[], 92), request(0, 100, &[50], 92)], None);
    let why = |name: &str| reading.metrics[name].omitted_reason.clone().unwrap();
    assert_eq!(why("ttft_ms"), "no event with content in 1 of 2 requests");
    assert_eq!(why("itl_ms"), "no request has two events with content");
    assert_eq!(reading.metrics["e2e_ms"].value, Some(92.0));
}

#[test]
fn another_number_of_tokens_than_was_asked_for_is_a_failure() {
    let failure = |change: &dyn Fn(&mut Request)| {
        let mut one = request(0, 0, &[50], 92);
        change(&mut one);
        read(vec![one], None).failure.unwrap()
    };
    let (reason, message) = failure(&|request| request.tokens = Some(3));
    assert_eq!((reason, message.as_str()), (Reason::Parse, "request 1 has 3 tokens in its answer by the server's count, and 4 were asked for"));
    let (_, message) = failure(&|request| request.timings = request.timings.map(|timings| Timings { predicted_n: 80, ..timings }));
    assert_eq!(message, "request 1 has 80 tokens in the timings of its answer by the server's count, and 4 were asked for");
    let (_, message) = failure(&|request| request.truncated = true);
    assert_eq!(message, "the context of request 1 was too small and was cut in its course: give more of it by `n_ctx`");
    let (_, message) = failure(&|request| request.prompt_tokens = None);
    assert_eq!(message, "request 1 has no number tokens in its prompt by the server's count, and 8 were asked for");
    assert_eq!(read(Vec::new(), None).failure.unwrap().1, "0 requests were answered, and 0 were to be");
}

/// The failure of a run whose server came to this, with this log.
fn failed(failure: ServeFailure, log: &str, oom_kills: bool) -> (Reason, String) {
    let asked =
        LlamaServerAsked { n_prompt: 8, n_gen: 4, requests: 1, startup_timeout_ms: 1500, slo: None, offload: None, ..LlamaServerAsked::default() };
    let stream = |kept: Vec<u8>| Stream { bytes: kept.len() as u64, kept, ..Stream::default() };
    let output = ServeOutput { requests: vec![request(0, 0, &[50], 92)], failure: Some(failure), ..ServeOutput::default() };
    let (stdout, stderr) = (stream(serde_json::to_vec(&output).unwrap()), stream(log.as_bytes().to_vec()));
    let reading = backend::read(&ParseSpec::LlamaServer(asked), &RawOutput { stdout, stderr, oom_kills, ..RawOutput::default() }, 0);
    assert!(reading.metrics.is_empty(), "what was answered before is in no number");
    reading.failure.unwrap()
}

#[test]
fn whatever_a_server_comes_to_has_its_reason() {
    let ended = |wait_status| ServeFailure::Ended { during: "request 3 of client 1, after 7 events with content".into(), wait_status };
    let dies = |status, log: &str, oom_kills| failed(ended(status), log, oom_kills);
    assert_eq!(dies(9, "", false), (Reason::Signal, "the server was ended in request 3 of client 1, after 7 events with content by SIGKILL".into()));
    let (reason, message) = dies(9, "0.01.000.000 I srv  up", true);
    assert!(reason == Reason::Oom && message.contains("by SIGKILL by the kernel, which was out of memory: 0.01.000.000 I srv  up"), "{message}");
    let (reason, message) = dies(6, "0.01.000.001 E ggml: GGML_ASSERT(x) failed\n0.01.000.002 I srv  bye\n", false);
    assert!(reason == Reason::Signal && message.ends_with("by SIGABRT: ggml: GGML_ASSERT(x) failed"), "{message}");
    assert_eq!(dies(1 << 8, "0.01.0 E x: failed to allocate buffer for kv cache", false).0, Reason::Oom);
    let late = failed(ServeFailure::StartupTimeout { last: "/health says 503: Loading model".into() }, "", false);
    let words = "the server was not ready within its start-up time-out of 1s 500ms (/health says 503: Loading model)";
    assert_eq!(late, (Reason::Timeout, words.to_owned()));
    let during = || "request 1 of client 2".to_owned();
    for (failure, reason, words) in [
        (ServeFailure::Spawn { message: "No such file or directory".into(), errno: Some(2) }, Reason::Spawn, "could not be started: No such file"),
        (ServeFailure::NoModel { said: "{}".into() }, Reason::ModelMissing, "ready without a model"),
        (ServeFailure::OtherModel { path: "b.gguf".into() }, Reason::ModelMissing, "another model than the one asked for: b.gguf"),
        (
            ServeFailure::TooFewClients { clients: 500, message: "Resource temporarily unavailable".into() },
            Reason::Internal,
            "no more than 500 clients could be started on the device: Resource",
        ),
        (ServeFailure::ContextTooSmall { n_ctx: 12 }, Reason::Precondition, "needs 13 tokens of context (8 of prompt, 4 generated, and 1)"),
        (ServeFailure::Cut { during: during(), events: 2 }, Reason::Parse, "ended the connection of request 1 of client 2 after 2 events"),
        (
            ServeFailure::Refused { during: during(), status: 400, said: "too long".into() },
            Reason::Parse,
            "refused request 1 of client 2, status 400: too long",
        ),
        (ServeFailure::NotUnderstood { during: during(), why: "odd".into() }, Reason::Parse, "was not understood: odd"),
    ] {
        let (said, message) = failed(failure, "", false);
        assert!(said == reason && message.contains(words), "{said:?} {message}");
    }
}

#[test]
fn a_gpu_that_was_asked_for_and_is_not_there_makes_the_record_invalid() {
    let of = |offload: Option<&str>, log: &str| {
        let offload = offload.map(str::to_owned);
        let asked = LlamaServerAsked { n_prompt: 8, n_gen: 4, requests: 1, startup_timeout_ms: 1, slo: None, offload, ..LlamaServerAsked::default() };
        let stream = |kept: Vec<u8>| Stream { bytes: kept.len() as u64, kept, ..Stream::default() };
        let output = ServeOutput { requests: vec![request(0, 0, &[50], 92)], ..ServeOutput::default() };
        let raw = RawOutput { stdout: stream(serde_json::to_vec(&output).unwrap()), stderr: stream(log.as_bytes().to_vec()), ..RawOutput::default() };
        let reading = backend::read(&ParseSpec::LlamaServer(asked), &raw, 0);
        let layers = ["layers_offloaded", "layers"].map(|name| reading.executed.get(name).and_then(|number| number.as_u64()));
        assert!(layers == [None; 2] || log.contains(&format!("{}/{} layers to GPU", layers[0].unwrap(), layers[1].unwrap())), "{layers:?}");
        assert_eq!(layers[0].is_some(), log.contains("offloaded"));
        reading.issues.iter().map(|issue| issue.message.clone()).collect::<Vec<_>>()
    };
    let log = "warning: no usable GPU found, --gpu-layers option will be ignored\nwarning: one possible reason is …\n";
    assert_eq!(
        of(Some("-ngl 99"), log),
        ["`-ngl 99` asks for a GPU, and the server used none: warning: no usable GPU found, --gpu-layers option will be ignored"]
    );
    assert_eq!((of(None, log), of(Some("-ngl 99"), "ggml_cuda_init: found 1 CUDA devices")), (vec![], vec![]));
    // What was tried first (`-fit`) is not what is served, and a draft model isn't either.
    let offloads = |number: &str| {
        format!(
            "0.00.200.000 I load_tensors: offloaded 33/33 layers to GPU\n0.01.100.000 I load_tensors: offloading {number} repeating layers to GPU\n\
             0.01.200.000 I load_tensors: offloaded {number}/33 layers to GPU\n0.01.200.001 I load_tensors:        CUDA0 model buffer size = 1 MiB\n\
             0.01.300.000 I load_tensors: offloaded 5/5 layers to GPU\n"
        )
    };
    let few = |asked: &str, not: &str| format!("`{asked}` asks for a GPU, and the server put 20 of the model's 33 layers there, not {not}");
    for (asked, number, said) in [
        (Some("-ngl 99"), "33", None),
        (Some("-ngl 20"), "20", None),
        (Some("-dev CUDA0"), "20", None),
        (None, "0", None),
        (Some("-ngl 99"), "20", Some(few("-ngl 99", "33"))),
        (Some("-ngl 21 -dev CUDA0"), "20", Some(few("-ngl 21 -dev CUDA0", "21"))),
        (Some("--gpu-layers all"), "20", Some(few("--gpu-layers all", "33"))),
        (Some("-dev CUDA0"), "0", Some("`-dev CUDA0` asks for a GPU, and the server put none of the model's 33 layers there".into())),
    ] {
        assert_eq!(of(asked, &offloads(number)), Vec::from_iter(said), "{asked:?} {number}");
    }
}

#[test]
fn more_context_than_the_model_was_trained_for_is_a_warning() {
    let of = |context_trained| {
        let server = ServerFacts { context_trained, ..ServerFacts::default() };
        let asked =
            LlamaServerAsked { n_prompt: 8, n_gen: 4, requests: 1, startup_timeout_ms: 1, slo: None, offload: None, ..LlamaServerAsked::default() };
        let stdout =
            serde_json::to_vec(&ServeOutput { requests: vec![request(0, 0, &[50], 92)], server: Some(server), ..ServeOutput::default() }).unwrap();
        let raw = RawOutput { stdout: Stream { bytes: stdout.len() as u64, kept: stdout, ..Stream::default() }, ..RawOutput::default() };
        backend::read(&ParseSpec::LlamaServer(asked), &raw, 0).issues.iter().map(|issue| issue.message.clone()).collect::<Vec<_>>()
    };
    assert_eq!(of(Some(11)), ["12 tokens of context for a model that was trained for 11"]);
    assert_eq!((of(Some(12)), of(None)), (vec![], vec![]));
}
