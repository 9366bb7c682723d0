//! Bytes as people read them. Belongs to no room.

/// `3.2 GiB`
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes as f64 / 1024.0 {
        kib if kib < 1024.0 => format!("{kib:.1} KiB"),
        kib if kib < 1024.0 * 1024.0 => format!("{:.0} MiB", kib / 1024.0),
        kib => format!("{:.1} GiB", kib / (1024.0 * 1024.0)),
    }
}
