//! A recorded answer to a streamed request: takes bytes and their moments, gives tokens and theirs. Must not know how it was recorded.

use super::http::{Answer, Recording};
use isotherm_wire::served::{Request, Timings};
use serde::Deserialize;

/// Why an answer is none.
#[derive(Debug, PartialEq, Eq)]
pub enum Broken {
    /// The connection ended before the answer did, after so many events with content.
    Cut {
        events: u64,
    },
    /// The server's words.
    Refused {
        status: u16,
        said: String,
    },
    NotUnderstood(String),
}

/// One event, as far as it counts.
#[derive(Deserialize)]
struct Event {
    content: Option<String>,
    #[serde(default)]
    stop: bool,
    tokens_predicted: Option<u64>,
    tokens_evaluated: Option<u64>,
    #[serde(default)]
    truncated: bool,
    timings: Option<Timings>,
    error: Option<serde_json::Value>,
}

/// Read the answer to `POST /completion` with `"stream": true`.
pub fn request(client: u32, recording: &Recording) -> Result<Request, Broken> {
    let answer = match Answer::read(&recording.bytes) {
        Ok(answer) => answer,
        Err(None) => return Err(Broken::Cut { events: 0 }),
        Err(Some(why)) => return Err(Broken::NotUnderstood(why)),
    };
    if answer.status != 200 {
        return Err(Broken::Refused { status: answer.status, said: answer.said() });
    }
    let mut request = Request { client, sent_ns: recording.sent_ns, ..Request::default() };
    let mut start = 0;
    while let Some(length) = answer.body[start..].iter().position(|&byte| byte == b'\n') {
        let (line, end) = (&answer.body[start..start + length], start + length);
        start = end + 1;
        // Whatever isn't data is a comment, the name of an event, or the line that ends one.
        let Some(data) = line.strip_prefix(b"data: ").or_else(|| line.strip_prefix(b"error: ")) else { continue };
        let event: Event = serde_json::from_slice(data).map_err(|e| {
            Broken::NotUnderstood(format!("an event of the stream ({e}): {:?}", String::from_utf8_lossy(&data[..data.len().min(200)])))
        })?;
        if let Some(error) = event.error {
            return Err(Broken::Refused { status: answer.status, said: error.to_string() });
        }
        let arrival_ns = recording.arrival_ns(answer.recorded_at(end));
        if event.content.is_some_and(|content| !content.is_empty()) {
            if request.content_ns.is_empty() {
                request.first_tokens = event.tokens_predicted;
            }
            request.content_ns.push(arrival_ns);
        }
        if event.stop {
            request.end_ns = arrival_ns;
            (request.prompt_tokens, request.tokens) = (event.tokens_evaluated, event.tokens_predicted);
            (request.timings, request.truncated) = (event.timings, event.truncated);
            return Ok(request);
        }
    }
    // Every stream has a final event; one that ended well without is none of this server's.
    match answer.is_whole {
        true => Err(Broken::NotUnderstood(format!("a stream without a final event, after {} with content", request.content_ns.len()))),
        false => Err(Broken::Cut { events: request.content_ns.len() as u64 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    const FINAL: &str = r#"{"content":"","stop":true,"tokens_predicted":2,"tokens_evaluated":5,"truncated":false,"timings":{"cache_n":0,"prompt_n":5,"prompt_ms":9.5,"predicted_n":2,"predicted_ms":4.5}}"#;

    fn event(data: &str) -> String {
        let text = format!("data: {data}\n\n");
        format!("{:x}\r\n{text}\r\n", text.len())
    }

    fn token(content: &str) -> String {
        nth_token(content, 1)
    }

    fn nth_token(content: &str, n: u64) -> String {
        event(&format!(r#"{{"content":"{content}","stop":false,"tokens_predicted":{n}}}"#))
    }

    #[test]
    fn tokens_have_the_moment_of_the_piece_that_completed_their_event() {
        let (first, second) = (token("a"), token("b"));
        let (before, after) = second.split_at(20);
        let pieces = [(110, HEAD), (120, &token("")), (130, &first), (140, before), (150, after), (160, &event(FINAL)), (161, "0\r\n\r\n")];
        let request = request(3, &Recording::of(100, &pieces)).expect("a request");
        assert_eq!((request.client, request.sent_ns, request.content_ns.as_slice(), request.end_ns), (3, 100, &[30, 50][..], 60));
        assert_eq!((request.prompt_tokens, request.tokens, request.truncated), (Some(5), Some(2), false));
        let timings = request.timings.expect("timings");
        assert_eq!((timings.cache_n, timings.prompt_n, timings.prompt_ms, timings.predicted_ms), (Some(0), 5, 9.5, 4.5));
    }

    #[test]
    fn the_first_event_that_shows_something_has_the_tokens_before_it_that_did_not() {
        let of = |events: &[String]| {
            let body = [HEAD.to_owned(), events.concat(), event(FINAL)].concat();
            request(0, &Recording::of(0, &[(1, &body)])).expect("a request").first_tokens
        };
        assert_eq!(of(&[nth_token("", 1), nth_token("é", 4), nth_token("b", 5)]), Some(4));
        assert_eq!((of(&[event(r#"{"content":"a"}"#)]), of(&[])), (None, None));
    }

    #[test]
    fn a_stream_that_ends_early_tells_how_far_it_came() {
        let of = |pieces: &[(u64, &str)]| request(0, &Recording::of(0, pieces)).expect_err("it is broken");
        assert_eq!(of(&[]), Broken::Cut { events: 0 });
        assert_eq!(of(&[(1, HEAD)]), Broken::Cut { events: 0 });
        assert_eq!(of(&[(1, HEAD), (2, &token("a")), (3, "5\r\ndata")]), Broken::Cut { events: 1 });
        assert!(matches!(of(&[(1, HEAD), (2, &token("a")), (3, "0\r\n\r\n")]), Broken::NotUnderstood(why) if why.contains("after 1 with content")));
    }

    #[test]
    fn refusals_are_told_in_the_servers_words() {
        let of = |text: &str| request(0, &Recording::of(0, &[(1, text)])).expect_err("it is refused");
        let refused = "HTTP/1.1 400 Bad Request\r\nContent-Length: 13\r\n\r\n{\"error\":\"x\"}";
        assert_eq!(of(refused), Broken::Refused { status: 400, said: "{\"error\":\"x\"}".into() });
        let in_stream = format!("{HEAD}{}", event(r#"{"error":{"code":500,"message":"decode failed"}}"#));
        assert_eq!(of(&in_stream), Broken::Refused { status: 200, said: r#"{"code":500,"message":"decode failed"}"#.into() });
        assert!(matches!(of(&format!("{HEAD}{}", event("[DONE]"))), Broken::NotUnderstood(why) if why.contains("[DONE]")));
    }
}
