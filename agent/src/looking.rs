//! Looking at something again and again beside a run, in a thread of its own, until it is stopped.
//!
//! Takes what is looked at, gives what it came to; must not know what that is.

use crate::sys;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::thread;

/// Who looks.
pub struct Looking<T> {
    thread: thread::JoinHandle<T>,
    stop: File,
}

/// Tells who looks that it is over.
pub struct Stopped(File);

impl<T: Send + 'static> Looking<T> {
    /// Start a thread of this name that looks until it is stopped.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(name: &str, look: impl FnOnce(&Stopped) -> T + Send + 'static) -> io::Result<Looking<T>> {
        let (stopped, stop) = sys::pipe()?;
        let thread = thread::Builder::new().name(name.into()).spawn(move || look(&Stopped(stopped)))?;
        Ok(Looking { thread, stop })
    }

    /// Stop looking: what was seen; `None` if the thread has died.
    pub fn stop(mut self) -> Option<T> {
        let _ = self.stop.write_all(&[0]);
        self.thread.join().ok()
    }
}

impl Stopped {
    /// Is it over within this time, ns? Waits for it.
    pub fn within(&self, ns: u64) -> bool {
        sys::poll_readable(&[self.0.as_raw_fd()], Some(ns))[0]
    }
}
