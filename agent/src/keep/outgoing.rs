//! The way to one client: what is said to it, in order, written by a thread of its own, so that nobody waits for a reader.

use isotherm_wire::codec::{write_bytes, write_message};
use isotherm_wire::session::FromAgent;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Messages on their way to a client: with full chunks, a few MiB.
const QUEUED: usize = 16;
/// A client that doesn't take a frame for this long is dropped.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long those who read slowly are waited for in all.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

enum Item {
    /// A message, and the chunk of bytes that it announces.
    Message(Box<FromAgent>, Option<Vec<u8>>),
    /// Everything before it has been written when this is answered, or dropped.
    Mark(SyncSender<()>),
}

#[derive(Clone)]
pub struct Outgoing {
    queue: SyncSender<Item>,
    stream: Arc<UnixStream>,
}

impl Outgoing {
    pub fn start(stream: UnixStream) -> std::io::Result<Outgoing> {
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let stream = Arc::new(stream);
        let (queue, items) = sync_channel(QUEUED);
        let to_write = Arc::clone(&stream);
        thread::Builder::new().name("outgoing".into()).spawn(move || write_out(&to_write, &items))?;
        Ok(Outgoing { queue, stream })
    }

    /// Answer a request; waits while the client has much to read. False once it is gone.
    pub fn answer(&self, message: FromAgent, chunk: Option<Vec<u8>>) -> bool {
        self.queue.send(Item::Message(Box::new(message), chunk)).is_ok()
    }

    /// Say something that wasn't asked for. A client that doesn't read is dropped: it comes back and asks.
    pub fn tell(&self, message: FromAgent) {
        if self.queue.try_send(Item::Message(Box::new(message), None)).is_err() {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

/// Wait until everything said so far has been handed to the system, a second at most.
pub fn flush(ways: &[Outgoing]) {
    let give_up_at = Instant::now() + FLUSH_TIMEOUT;
    let marks: Vec<_> = ways
        .iter()
        .filter_map(|way| {
            let (mark, written) = sync_channel(1);
            way.queue.try_send(Item::Mark(mark)).ok().map(|()| written)
        })
        .collect();
    for written in marks {
        let _ = written.recv_timeout(give_up_at.saturating_duration_since(Instant::now()));
    }
}

fn write_out(mut stream: &UnixStream, items: &Receiver<Item>) {
    for item in items {
        let written = match item {
            Item::Message(message, chunk) => {
                write_message(&mut stream, &message).and_then(|()| chunk.map_or(Ok(()), |chunk| write_bytes(&mut stream, &chunk)))
            }
            Item::Mark(mark) => {
                let _ = mark.try_send(());
                Ok(())
            }
        };
        if written.is_err() {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use isotherm_wire::codec::{Frame, read_frame};
    use isotherm_wire::session::{Event, Phase, Reply};

    #[test]
    fn what_is_said_arrives_in_order_and_before_a_flush_returns() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let way = Outgoing::start(ours).unwrap();
        assert!(way.answer(FromAgent::Reply { id: 7, reply: Reply::Chunk { offset: 0, bytes: 3, total: 3 } }, Some(vec![1, 2, 3])));
        way.tell(FromAgent::Event(Event::Phase { run_id: "r".into(), phase: Phase::Measure }));
        flush(std::slice::from_ref(&way));
        theirs.set_nonblocking(true).unwrap();
        let first: FromAgent = read_frame(&mut theirs).unwrap().unwrap().message().unwrap();
        assert!(matches!(first, FromAgent::Reply { id: 7, .. }));
        assert_eq!(read_frame(&mut theirs).unwrap(), Some(Frame::Bytes(vec![1, 2, 3])));
        let last: FromAgent = read_frame(&mut theirs).unwrap().unwrap().message().unwrap();
        assert!(matches!(last, FromAgent::Event(_)));
    }

    #[test]
    fn a_client_that_does_not_read_is_dropped_and_not_waited_for() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let way = Outgoing::start(ours).unwrap();
        let event = || FromAgent::Event(Event::SealFailed { run_id: "r".into(), message: "x".repeat(1 << 20) });
        // The first fills the socket and holds the writer, the others fill the queue.
        for _ in 0..QUEUED + 2 {
            way.tell(event());
        }
        let mut rest = Vec::new();
        // It ends, although nobody has closed it here.
        assert!(std::io::Read::read_to_end(&mut &theirs, &mut rest).unwrap() < 2 << 20);
        drop(way);
    }
}
