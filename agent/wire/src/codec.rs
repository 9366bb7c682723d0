//! Frames: `u32` big-endian payload length, one kind byte, payload.
//!
//! `J` carries one JSON message, `B` a chunk of raw bytes. Both are capped, so that a broken peer can't make us allocate without bound.

use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};

/// Largest JSON payload accepted, in bytes.
pub const MAX_JSON_BYTES: usize = 64 << 20;
/// Largest byte chunk sent or accepted, in bytes.
pub const MAX_CHUNK_BYTES: usize = 256 << 10;

/// One frame as received.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A JSON message, not yet parsed.
    Json(Vec<u8>),
    /// A chunk of raw bytes.
    Bytes(Vec<u8>),
}

impl Frame {
    /// Parse a JSON frame into a message.
    ///
    /// # Errors
    /// `InvalidData` if the frame holds bytes, or JSON of another shape.
    pub fn message<T: DeserializeOwned>(&self) -> io::Result<T> {
        match self {
            Frame::Json(payload) => serde_json::from_slice(payload).map_err(|e| invalid(format!("message not understood: {e}"))),
            Frame::Bytes(_) => Err(invalid("a chunk of bytes where a message was expected".into())),
        }
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Read one frame; `None` at a clean end of stream (between frames).
///
/// # Errors
/// `InvalidData` for an unknown kind or a length over the cap, `UnexpectedEof` inside a frame, and what the reader returns.
pub fn read_frame(reader: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut head = [0u8; 5];
    let mut have = 0;
    while have < head.len() {
        match reader.read(&mut head[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let cap = match head[4] {
        b'J' => MAX_JSON_BYTES,
        b'B' => MAX_CHUNK_BYTES,
        other => return Err(invalid(format!("unknown frame kind 0x{other:02x}"))),
    };
    if length > cap {
        return Err(invalid(format!("frame of {length} bytes, the most is {cap}")));
    }
    // Grows as bytes arrive: a lying length alone allocates nothing.
    let mut payload = Vec::new();
    reader.take(length as u64).read_to_end(&mut payload)?;
    if payload.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(if head[4] == b'J' { Frame::Json(payload) } else { Frame::Bytes(payload) }))
}

fn write_frame(writer: &mut impl Write, kind: u8, payload: &[u8], cap: usize) -> io::Result<()> {
    if payload.len() > cap {
        return Err(invalid(format!("frame of {} bytes, the most is {cap}", payload.len())));
    }
    let mut frame = Vec::with_capacity(payload.len() + 5);
    frame.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    frame.push(kind);
    frame.extend_from_slice(payload);
    writer.write_all(&frame)?;
    writer.flush()
}

/// Write one JSON message as a frame.
///
/// # Errors
/// `InvalidData` if the message is over [`MAX_JSON_BYTES`], and what the writer returns.
pub fn write_message(writer: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let payload = serde_json::to_vec(message).map_err(|e| invalid(e.to_string()))?;
    write_frame(writer, b'J', &payload, MAX_JSON_BYTES)
}

/// Write one chunk of raw bytes as a frame.
///
/// # Errors
/// `InvalidData` if the chunk is over [`MAX_CHUNK_BYTES`], and what the writer returns.
pub fn write_bytes(writer: &mut impl Write, chunk: &[u8]) -> io::Result<()> {
    write_frame(writer, b'B', chunk, MAX_CHUNK_BYTES)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_message_and_a_chunk_round_trip() {
        let mut stream = Vec::new();
        write_message(&mut stream, &serde_json::json!({"a": [1, 2]})).unwrap();
        write_bytes(&mut stream, &[0, 255, 10]).unwrap();
        let mut reader = stream.as_slice();
        let first: serde_json::Value = read_frame(&mut reader).unwrap().unwrap().message().unwrap();
        assert_eq!(first["a"][1], 2);
        assert_eq!(read_frame(&mut reader).unwrap(), Some(Frame::Bytes(vec![0, 255, 10])));
        assert_eq!(read_frame(&mut reader).unwrap(), None);
    }

    #[test]
    fn a_cut_frame_is_an_error_and_not_an_end() {
        let mut stream = Vec::new();
        write_message(&mut stream, &"hello").unwrap();
        for cut in 1..stream.len() {
            let error = read_frame(&mut &stream[..cut]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "cut at {cut}");
        }
    }

    #[test]
    fn an_oversized_length_is_refused_before_anything_is_read() {
        let error = read_frame(&mut &[0xff, 0xff, 0xff, 0xff, b'J'][..]).unwrap_err();
        assert!(error.to_string().contains("the most is"), "{error}");
        let error = read_frame(&mut &[0, 0, 0, 1, b'X', 0][..]).unwrap_err();
        assert!(error.to_string().contains("0x58"), "{error}");
    }
}
