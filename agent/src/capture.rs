//! Output of a workload, held in bounded memory: beginning and end are kept, the middle is counted and hashed.

use crate::sys::monotonic_ns;
use base64::{Engine, engine::general_purpose::STANDARD};
use isotherm_wire::result::{Blob, Captured, Encoding};
use isotherm_wire::task::Secrets;
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, VecDeque};

/// Bytes kept of each end of a stream.
pub const KEPT_BYTES: usize = 1 << 20;

/// Lines of a stream whose time is kept, where it is asked for: an order of magnitude more than a tool prints that tells how far it is.
const MOST_STAMPED_LINES: usize = 4096;

/// A line of a secret of several, or one without the white space around it, is hidden by itself from so many bytes on: that is the
/// shortest secret that a campaign may have.
const LEAST_OF_A_SECRET: usize = 8;

/// Collects one stream. Hashing waits until bytes have to be dropped or the stream is over, so that a small output costs nothing
/// while the workload runs.
pub struct Capture {
    keep: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    bytes: u64,
    /// Over `head` and what fell out of `tail`; `None` until something did.
    dropped: Option<Sha256>,
    hidden: Hidden,
    /// When the end of each line arrived; `None` = not asked for.
    line_ns: Option<Vec<u64>>,
}

impl Capture {
    pub fn new(keep: usize) -> Capture {
        Capture { keep, head: Vec::new(), tail: VecDeque::new(), bytes: 0, dropped: None, hidden: Hidden::default(), line_ns: None }
    }

    /// Notes when lines arrive, in memory that is there from now on: none is asked for while the workload runs.
    pub fn with_stamps(mut self) -> Capture {
        let mut room = vec![u64::MAX; MOST_STAMPED_LINES];
        room.clear();
        self.line_ns = Some(room);
        self
    }

    /// Secrets are replaced by their tokens before anything is counted, kept or hashed.
    pub fn without(mut self, secrets: &Secrets) -> Capture {
        self.hidden = Hidden::of(secrets);
        self
    }

    pub fn push(&mut self, chunk: &[u8]) {
        if self.hidden.is_empty() {
            self.take(chunk);
        } else {
            let shown = self.hidden.pass(chunk);
            self.take(&shown);
        }
    }

    fn take(&mut self, mut chunk: &[u8]) {
        if let Some(stamps) = &mut self.line_ns {
            let at_ns = monotonic_ns();
            let lines = chunk.iter().filter(|byte| **byte == b'\n').count().min(MOST_STAMPED_LINES - stamps.len());
            stamps.extend(std::iter::repeat_n(at_ns, lines));
        }
        self.bytes += chunk.len() as u64;
        if self.head.len() < self.keep {
            let n = chunk.len().min(self.keep - self.head.len());
            self.head.extend_from_slice(&chunk[..n]);
            chunk = &chunk[n..];
        }
        self.tail.extend(chunk);
        if let Some(excess) = self.tail.len().checked_sub(self.keep).filter(|&n| n > 0) {
            let head = &self.head;
            let hasher = self.dropped.get_or_insert_with(|| Sha256::new().chain_update(head));
            let gone: Vec<u8> = self.tail.drain(..excess).collect();
            hasher.update(&gone);
        }
    }

    pub fn finish(mut self) -> Captured {
        let rest = self.hidden.rest();
        self.take(&rest);
        let redacted = self.hidden.replaced;
        let line_ns = self.line_ns.unwrap_or_default();
        let tail = self.tail.make_contiguous();
        match self.dropped {
            Some(hasher) => Captured {
                bytes: self.bytes,
                sha256: hex(&hasher.chain_update(&*tail).finalize()),
                head: blob(&self.head),
                tail: Some(blob(tail)),
                redacted,
                line_ns,
            },
            None => {
                self.head.extend_from_slice(tail);
                Captured { bytes: self.bytes, sha256: sha256_hex(&self.head), head: blob(&self.head), tail: None, redacted, line_ns }
            }
        }
    }
}

/// Replaces secrets in a stream that comes in pieces.
#[derive(Default)]
struct Hidden {
    /// Value and token, the longest value first.
    secrets: Vec<(Vec<u8>, Vec<u8>)>,
    /// The end of what came: it may be the beginning of a secret.
    held: Vec<u8>,
    /// How often one was replaced.
    replaced: u64,
}

impl Hidden {
    fn of(secrets: &Secrets) -> Hidden {
        let pairs = |(name, value): (&String, &String)| {
            let lines = value.lines().map(str::trim).chain([value.trim()]).filter(|line| line.len() >= LEAST_OF_A_SECRET);
            let texts: BTreeSet<String> = lines.chain([value.as_str()]).filter(|text| !text.is_empty()).map(str::to_owned).collect();
            let token = Secrets::token(name).into_bytes();
            texts.into_iter().map(|text| (text.into_bytes(), token.clone())).collect::<Vec<_>>()
        };
        let mut secrets: Vec<_> = secrets.0.iter().flat_map(pairs).collect();
        secrets.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        Hidden { secrets, held: Vec::new(), replaced: 0 }
    }

    fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// What can be shown of what came so far.
    fn pass(&mut self, chunk: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(chunk);
        self.shown(false)
    }

    fn rest(&mut self) -> Vec<u8> {
        self.shown(true)
    }

    fn shown(&mut self, at_end: bool) -> Vec<u8> {
        let mut shown = Vec::new();
        let mut at = 0;
        while at < self.held.len() {
            let rest = &self.held[at..];
            // A longer secret that begins alike may still come.
            if !at_end && self.secrets.iter().any(|(value, _)| value.len() > rest.len() && value.starts_with(rest)) {
                break;
            }
            if let Some((value, token)) = self.secrets.iter().find(|(value, _)| rest.starts_with(value)) {
                shown.extend_from_slice(token);
                self.replaced += 1;
                at += value.len();
            } else {
                shown.push(rest[0]);
                at += 1;
            }
        }
        self.held.drain(..at);
        shown
    }
}

/// Bytes as text where they are UTF-8, else base64.
pub fn blob(bytes: &[u8]) -> Blob {
    match std::str::from_utf8(bytes) {
        Ok(text) => Blob { encoding: Encoding::Utf8, data: text.to_owned() },
        Err(_) => Blob { encoding: Encoding::Base64, data: STANDARD.encode(bytes) },
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_stream_is_kept_whole() {
        let mut capture = Capture::new(4);
        capture.push(b"ab");
        capture.push(b"cdefgh");
        let captured = capture.finish();
        assert_eq!((captured.bytes, captured.head.data.as_str(), captured.tail), (8, "abcdefgh", None));
        assert_eq!(captured.sha256, sha256_hex(b"abcdefgh"));
    }

    #[test]
    fn a_long_stream_keeps_its_ends_and_the_hash_of_all() {
        let all: Vec<u8> = (0..100_000u32).map(|i| b'a' + (i % 23) as u8).collect();
        for step in [1usize, 7, 64, 5000] {
            let mut capture = Capture::new(64);
            all.chunks(step).for_each(|chunk| capture.push(chunk));
            let captured = capture.finish();
            assert_eq!(captured.bytes, 100_000);
            assert_eq!(captured.sha256, sha256_hex(&all));
            assert_eq!(captured.head.data.as_bytes(), &all[..64]);
            assert_eq!(captured.tail.map(|t| t.data.into_bytes()).as_deref(), Some(&all[100_000 - 64..]));
        }
    }

    #[test]
    fn each_line_is_stamped_once_its_end_is_there_and_only_where_that_is_asked_for() {
        let before = monotonic_ns();
        let mut capture = Capture::new(8).with_stamps();
        [&b"one"[..], b"\ntwo\nth", b"ree\n", b"without an end"].into_iter().for_each(|chunk| capture.push(chunk));
        let captured = capture.finish();
        let stamps = &captured.line_ns;
        assert!(stamps.len() == 3 && stamps[0] == stamps[1] && stamps[1] <= stamps[2], "{stamps:?}");
        assert!(before <= stamps[0] && stamps[2] <= monotonic_ns(), "{stamps:?}");
        let mut many = Capture::new(8).with_stamps();
        many.push(&[b'\n'; MOST_STAMPED_LINES + 1]);
        many.push(b"\n");
        assert_eq!((many.finish().line_ns.len(), Capture::new(8).finish().line_ns.len()), (MOST_STAMPED_LINES, 0));
    }

    #[test]
    fn a_secret_leaves_no_trace_however_the_stream_is_cut() {
        let secrets: Secrets = [("A", "hunter2-hunter2"), ("B", "hunter2-hunter2-long"), ("EMPTY", "")]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let said = "key=hunter2-hunter2; hunter2-hunter hunter2-hunter2-long, hunter2-hunter2";
        let kept = "key=${secret:A}; hunter2-hunter ${secret:B}, ${secret:A}";
        for step in 1..said.len() {
            let mut capture = Capture::new(1000).without(&secrets);
            said.as_bytes().chunks(step).for_each(|chunk| capture.push(chunk));
            let captured = capture.finish();
            assert_eq!(captured.head.data, kept, "in pieces of {step}");
            assert_eq!((captured.bytes, captured.redacted, captured.sha256), (kept.len() as u64, 3, sha256_hex(kept.as_bytes())));
        }
    }

    #[test]
    fn a_secret_of_several_lines_is_hidden_line_by_line_too_and_without_the_line_break_at_its_end() {
        let key = "-----BEGIN KEY-----\nQUJDREVGRw==\nend\n-----END KEY-----\n";
        let secrets: Secrets = [("KEY", key), ("PIN", "12345678\n")].into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut capture = Capture::new(1000).without(&secrets);
        capture.push(format!("{key}> QUJDREVGRw==, 12345678; end {}", key.trim()).as_bytes());
        assert_eq!(capture.finish().head.data, "${secret:KEY}> ${secret:KEY}, ${secret:PIN}; end ${secret:KEY}");
    }

    #[test]
    fn bytes_that_are_not_text_travel_as_base64() {
        assert_eq!(blob(&[0xff, 0x00]), Blob { encoding: Encoding::Base64, data: "/wA=".into() });
        assert_eq!(blob("é\u{1b}".as_bytes()).encoding, Encoding::Utf8);
    }
}
