//! As much of HTTP/1.1 as asking a server on this machine takes: a request is written, and what comes is recorded with its moments until
//! the server ends the connection; only then is it read.
//!
//! Nothing is looked up and no variable for proxies is heeded: the address is 127.0.0.1.

use crate::sys;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// An answer has no more bytes: the longest streams of a hundred thousand tokens have a fifth of it.
const MOST_BYTES: usize = 128 << 20;
/// Longest wait for a connection to this machine.
const CONNECT: Duration = Duration::from_secs(5);

/// A request as it goes over the wire; the server ends the connection after its answer.
pub fn request(port: u16, method: &str, path: &str, body: Option<&str>) -> Vec<u8> {
    let about_body = body.map_or_else(String::new, |body| format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
    let body = body.unwrap_or_default();
    format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{about_body}\r\n{body}").into_bytes()
}

/// What came in answer to one request, and when. Used again for the next one, so that memory is there before anything is timed.
pub struct Recording {
    pub bytes: Vec<u8>,
    /// How many bytes had come, and when they had: CLOCK_MONOTONIC, ns; ascending.
    stamps: Vec<(usize, u64)>,
    pub sent_ns: u64,
    chunk: Vec<u8>,
}

impl Recording {
    pub fn with_room_for(bytes: usize, events: usize) -> Recording {
        Recording { bytes: Vec::with_capacity(bytes), stamps: Vec::with_capacity(events), sent_ns: 0, chunk: vec![0; 64 << 10] }
    }

    /// Send a request and record until the connection ends, however it does, or until this moment of CLOCK_BOOTTIME, ns.
    ///
    /// # Errors
    /// There is no connection, or the request can't be written.
    pub fn exchange(&mut self, port: u16, request: &[u8], until: Option<u64>) -> io::Result<()> {
        self.bytes.clear();
        self.stamps.clear();
        let left = || until.map(|until| Duration::from_nanos(until.saturating_sub(sys::boottime_ns()).max(1)));
        let patience = left().map_or(CONNECT, |left| left.min(CONNECT));
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), patience)?;
        stream.set_nodelay(true)?;
        self.sent_ns = sys::monotonic_ns();
        stream.write_all(request)?;
        while self.bytes.len() < MOST_BYTES {
            if let Some(until) = until {
                if sys::boottime_ns() >= until {
                    break;
                }
                stream.set_read_timeout(left())?;
            }
            match stream.read(&mut self.chunk) {
                Ok(0) => break,
                Ok(n) => {
                    let now = sys::monotonic_ns();
                    self.bytes.extend_from_slice(&self.chunk[..n]);
                    self.stamps.push((self.bytes.len(), now));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A server that died, or that let us wait: what came is what there is.
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// When the byte at this offset had come, from the moment of sending, ns.
    pub fn arrival_ns(&self, offset: usize) -> u64 {
        let at = self.stamps.partition_point(|(bytes, _)| *bytes <= offset);
        self.stamps.get(at).or(self.stamps.last()).map_or(0, |(_, ns)| ns.saturating_sub(self.sent_ns))
    }

    /// As it was recorded: pieces with the moment of each, for tests.
    #[cfg(test)]
    pub fn of(sent_ns: u64, pieces: &[(u64, &str)]) -> Recording {
        let mut recording = Recording::with_room_for(0, 0);
        recording.sent_ns = sent_ns;
        for (ns, piece) in pieces {
            recording.bytes.extend_from_slice(piece.as_bytes());
            recording.stamps.push((recording.bytes.len(), *ns));
        }
        recording
    }
}

/// An answer that was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    /// It came to its end.
    pub is_whole: bool,
    /// Pieces of the body: where each begins, there and in what was recorded.
    pieces: Vec<(usize, usize)>,
}

impl Answer {
    /// # Errors
    /// It is no answer of HTTP, in words; `None` for one that ended before its head did.
    pub fn read(recorded: &[u8]) -> Result<Answer, Option<String>> {
        let Some(head_end) = recorded.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4) else {
            let begins_well = recorded.starts_with(b"HTTP/1.") || b"HTTP/1.".starts_with(recorded);
            return Err((!begins_well).then(|| format!("no answer of HTTP: {:?}", shown(recorded))));
        };
        let head = String::from_utf8_lossy(&recorded[..head_end]).into_owned();
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok());
        let status = status.ok_or_else(|| Some(format!("no answer of HTTP: {:?}", shown(recorded))))?;
        let fields: Vec<(String, &str)> =
            lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name.to_ascii_lowercase(), value.trim())).collect();
        let field = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        let is_chunked = field("transfer-encoding").is_some_and(|encoding| encoding.eq_ignore_ascii_case("chunked"));
        if is_chunked {
            return chunked(status, recorded, head_end).map_err(Some);
        }
        let body = recorded[head_end..].to_vec();
        // Without a length it ends with the connection.
        let is_whole = field("content-length").and_then(|length| length.parse().ok()).is_none_or(|length: usize| body.len() >= length);
        Ok(Answer { status, body, is_whole, pieces: vec![(0, head_end)] })
    }

    /// Where in what was recorded the byte of the body at this offset is.
    pub fn recorded_at(&self, offset: usize) -> usize {
        let at = self.pieces.partition_point(|(body, _)| *body <= offset);
        self.pieces[..at].last().map_or(0, |(body, recorded)| recorded + (offset - body))
    }

    /// For people.
    pub fn said(&self) -> String {
        shown(&self.body)
    }
}

fn chunked(status: u16, recorded: &[u8], mut at: usize) -> Result<Answer, String> {
    let mut answer = Answer { status, body: Vec::new(), is_whole: false, pieces: Vec::new() };
    while let Some(line) = recorded[at..].windows(2).position(|two| two == b"\r\n") {
        let size = String::from_utf8_lossy(&recorded[at..at + line]).into_owned();
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| format!("a piece of an answer of {size:?} bytes"))?;
        if size == 0 {
            answer.is_whole = true;
            break;
        }
        let start = at + line + 2;
        let end = start.saturating_add(size).min(recorded.len());
        answer.pieces.push((answer.body.len(), start));
        answer.body.extend_from_slice(&recorded[start..end]);
        // Behind a piece there is a line break.
        at = end.saturating_add(2).min(recorded.len());
    }
    Ok(answer)
}

/// The beginning of some text of others.
fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 600;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]).trim().to_owned();
    if bytes.len() > MOST { text + " …" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=1\r\n world\r\n0\r\n\r\n";

    #[test]
    fn a_body_is_put_together_and_every_byte_of_it_keeps_its_place() {
        let answer = Answer::read(CHUNKED.as_bytes()).expect("an answer");
        assert_eq!((answer.status, answer.said().as_str(), answer.is_whole), (200, "hello world", true));
        for (offset, byte) in answer.body.iter().enumerate() {
            assert_eq!(CHUNKED.as_bytes()[answer.recorded_at(offset)], *byte, "{offset}");
        }
        let plain = Answer::read(b"HTTP/1.1 400 Bad\r\ncontent-length: 2\r\n\r\nno").expect("an answer");
        assert_eq!((plain.status, plain.said().as_str(), plain.is_whole, plain.recorded_at(1)), (400, "no", true, 40));
    }

    #[test]
    fn an_answer_that_is_cut_says_so_wherever_it_is() {
        let head = CHUNKED.find("\r\n\r\n").expect("a head") + 4;
        for length in 0..CHUNKED.len() {
            match Answer::read(&CHUNKED.as_bytes()[..length]) {
                Ok(answer) => assert_eq!((answer.is_whole, length >= head), (length >= CHUNKED.len() - 2, true), "{length}"),
                Err(why) => assert_eq!((why, length < head), (None, true), "{length}"),
            }
        }
        let short = Answer::read(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").expect("an answer");
        assert!(!short.is_whole);
    }

    #[test]
    fn what_is_no_http_is_shown() {
        assert_eq!(Answer::read(b"SSH-2.0-x\r\n"), Err(Some("no answer of HTTP: \"SSH-2.0-x\"".into())));
        assert!(Answer::read(b"HTTP/1.1 what\r\n\r\n").is_err_and(|why| why.is_some()));
        let odd = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        assert_eq!(Answer::read(odd), Err(Some("a piece of an answer of \"zz\" bytes".into())));
    }

    #[test]
    fn a_byte_came_with_the_piece_that_it_was_in() {
        let recording = Recording::of(1000, &[(1010, "abc"), (1030, "d")]);
        assert_eq!([0, 2, 3].map(|offset| recording.arrival_ns(offset)), [10, 10, 30]);
    }
}
