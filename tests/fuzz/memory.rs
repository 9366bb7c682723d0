//! Counts what a thread has allocated, so that a reader that takes memory without bound is seen, and stopped before the machine suffers.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// No reader of any input may come near it, bytes.
const CEILING: isize = 1 << 30;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

pub struct Counting;

/// False if it would be too much.
fn grow(bytes: isize) -> bool {
    let now = NOW.get() + bytes;
    let fits = bytes < 0 || now < CEILING;
    if fits {
        NOW.set(now);
        MOST.set(MOST.get().max(now));
    }
    fits
}

// SAFETY: the system's allocator, or no memory at all; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as our caller promises.
        if grow(layout.size().cast_signed()) { unsafe { System.alloc(layout) } } else { std::ptr::null_mut() }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        grow(-layout.size().cast_signed());
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}

/// What `work` gives, and the most bytes that it held at a time beyond what was there before. What other threads allocate is theirs.
pub fn most_during<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.get();
    MOST.set(before);
    let given = work();
    (given, (MOST.get() - before).cast_unsigned())
}
