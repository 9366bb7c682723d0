//! What llama.cpp's server logs of how it was started, at the level that it has by itself. Pure.

use super::output::Stream;

/// Before the number of threads that compute: in builds of 2026, and in earlier ones. Those of a draft model aren't told.
const THREADS: [&str; 2] = ["llama threadpool init, n_threads = ", "system info: n_threads = "];

/// The beginning of a log, as far as nothing is missing in it.
pub(super) fn beginning(log: &Stream) -> String {
    String::from_utf8_lossy(&log.kept[..log.cut_at.unwrap_or(log.kept.len())]).into_owned()
}

/// `None` = it doesn't tell: the build, or its level (`-lv`).
pub(super) fn n_threads(log: &str) -> Option<u64> {
    THREADS.iter().find_map(|words| number_after(log, words))
}

/// What is told of the context that a request has; of the rest it doesn't tell.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Context {
    /// All requests share one, of which each may take all; `false` = each has its part.
    pub unified: Option<bool>,
    /// Tokens for each, where the server's own limit (`--kv-unified-per-slot`) then left it less.
    pub before_limit: Option<u64>,
}

/// Said in one line with what each request has: earlier builds, which had another rule for that, say no word of either.
pub(super) fn context(log: &str) -> Context {
    let of_slots = log.lines().find_map(|line| line.split_once(", n_ctx_slot = ")?.1.split_once(", kv_unified = '"));
    let unified = match of_slots.map(|(_, rest)| rest) {
        Some("true'") => Some(true),
        Some("false'") => Some(false),
        _ => None,
    };
    Context { unified, before_limit: number_after(log, "capping per-slot context (") }
}

/// The number is whole: something else follows.
fn number_after(log: &str, words: &str) -> Option<u64> {
    let (_, rest) = log.split_once(words)?;
    rest[..rest.find(|next: char| !next.is_ascii_digit())?].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_told_by_builds_of_all_years_and_by_no_part_of_a_number() {
        for (log, threads) in [
            ("0.00.046.392 I cmn          init: llama threadpool init, n_threads = 12\n", Some(12)),
            ("system info: n_threads = 4, n_threads_batch = 8, total_threads = 8\n", Some(4)),
            ("llama threadpool init, n_threads = 1", None),
            ("llama threadpool init, n_threads = -1\n", None),
            ("srv  init: using 8 threads for HTTP server\n", None),
        ] {
            assert_eq!(n_threads(log), threads, "{log}");
        }
        let cut = Stream { kept: b"llama threadpool init, n_threads = 12 more\n".to_vec(), cut_at: Some(36), ..Stream::default() };
        assert_eq!(n_threads(&beginning(&cut)), None);
    }

    #[test]
    fn the_context_of_requests_is_shared_or_not_by_one_line_alone() {
        let slots = |unified: &str| format!("0.00.067.643 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 256, kv_unified = {unified}");
        for (log, unified) in [
            (slots("'false'\n"), Some(false)),
            (slots("'true'\n"), Some(true)),
            (slots("'tr"), None),
            ("llama_context: kv_unified            = true\n".to_owned(), None),
        ] {
            assert_eq!(context(&log), Context { unified, before_limit: None }, "{log}");
        }
        let limited = "srv load_model: capping per-slot context (1024) to --kv-unified-per-slot (512)\n";
        assert_eq!(context(limited), Context { unified: None, before_limit: Some(1024) });
    }
}
