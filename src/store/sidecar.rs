//! Sidecars: what is too large for a record lies compressed beside it, named with size and sha256.

use super::file::{self, MOST_BYTES};
use super::record::{RawStream, Record, SampledColumn, Samples, Sidecar};
use crate::digest::sha256_hex;
use base64::{Engine, engine::general_purpose::STANDARD};
use isotherm_wire::result::{Blob, Encoding};
use isotherm_wire::telemetry::{self, Column, Series};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Most sampled values that stay in the record.
pub const INLINE_VALUES: usize = 4096;
/// Longest output that stays in the record, bytes.
pub const INLINE_BYTES: usize = 64 << 10;

/// Bytes of a blob.
///
/// # Errors
/// Base64 that isn't.
pub fn decode(blob: &Blob) -> Result<Vec<u8>, String> {
    match blob.encoding {
        Encoding::Utf8 => Ok(blob.data.clone().into_bytes()),
        Encoding::Base64 => STANDARD.decode(&blob.data).map_err(|e| e.to_string()),
    }
}

/// Move what is large out of the record; name and content of each sidecar. `stem` is the record's file name without `.json`.
#[must_use]
pub fn take_out(record: &mut Record, stem: &str) -> Vec<(String, Vec<u8>)> {
    // Attempts and superseded records lie beside each other under new names: a sidecar's name must be unique without its record's.
    let id: String = record.ids.run_id.chars().rev().take(8).collect::<Vec<_>>().into_iter().rev().collect();
    // What is derived again may differ, and the earlier reading keeps its own.
    let stem = match record.read.as_ref().map_or(0, |read| read.again.len()) {
        0 => format!("{stem}.{id}"),
        n => format!("{stem}.{id}.read{n}"),
    };
    let mut files = Vec::new();
    let mut add = |name: String, content: &[u8], format: &str| {
        let bytes = zstd::bulk::compress(content, 3).ok()?;
        let sidecar = Sidecar { name: name.clone(), bytes: bytes.len() as u64, sha256: sha256_hex(&bytes), format: format.to_owned() };
        files.push((name, bytes));
        Some(sidecar)
    };
    if let Samples::Inline(series) = &record.samples
        && series.monotonic_ns.len() * (series.columns.len() + 1) > INLINE_VALUES
        && let Some(file) = add(format!("{stem}.samples.csv.zst"), csv(series).as_bytes(), "csv+zstd")
    {
        let column =
            |c: &Column| SampledColumn { metric: c.metric.clone(), unit: c.unit.clone(), subject: c.subject.clone(), source: c.source.clone() };
        let columns = series.columns.iter().map(column).collect();
        record.samples = Samples::Sidecar { file, columns };
    }
    for (i, metric) in record.metrics.values_mut().enumerate().filter(|(_, metric)| metric.samples.len() > INLINE_VALUES) {
        let lines: String = metric.samples.iter().map(|value| format!("{value}\n")).collect();
        if let Some(sidecar) = add(format!("{stem}.metric{i}.csv.zst"), lines.as_bytes(), "csv+zstd") {
            metric.samples_sidecar = Some(sidecar);
            metric.samples = Vec::new();
        }
    }
    let raw = &mut record.raw;
    let mut streams: Vec<(String, &mut RawStream)> = vec![("stdout".into(), &mut raw.stdout), ("stderr".into(), &mut raw.stderr)];
    streams.extend(raw.files.values_mut().enumerate().map(|(i, s)| (format!("file{i}"), s)));
    for (i, invocation) in raw.warmup.iter_mut().enumerate() {
        streams.push((format!("warmup{i}.stdout"), &mut invocation.stdout));
        streams.push((format!("warmup{i}.stderr"), &mut invocation.stderr));
    }
    for (name, stream) in streams {
        let blobs = stream.head.iter().chain(&stream.tail);
        let Ok(parts) = blobs.map(decode).collect::<Result<Vec<_>, _>>() else { continue };
        let content = parts.concat();
        if content.len() > INLINE_BYTES
            && let Some(sidecar) = add(format!("{stem}.{name}.zst"), &content, "zstd")
        {
            stream.sidecar = Some(sidecar);
            stream.head = None;
            stream.tail = None;
        }
    }
    files
}

fn csv(series: &Series) -> String {
    let mut text = String::from("monotonic_ns");
    for column in &series.columns {
        text += ",";
        // A driver's name may hold anything.
        match telemetry::key(&column.metric, column.subject.as_deref()) {
            name if name.contains([',', '"', '\n', '\r']) => text += &format!("\"{}\"", name.replace('"', "\"\"")),
            name => text += &name,
        }
    }
    text += "\n";
    for (i, time) in series.monotonic_ns.iter().enumerate() {
        text += &time.to_string();
        for column in &series.columns {
            text += ",";
            if let Some(Some(value)) = column.values.get(i) {
                text += &value.to_string();
            }
        }
        text += "\n";
    }
    text
}

/// All sidecars that a record names.
#[must_use]
pub fn of(record: &Record) -> Vec<&Sidecar> {
    let raw = &record.raw;
    let streams = [&raw.stdout, &raw.stderr].into_iter().chain(raw.files.values());
    let streams = streams.chain(raw.warmup.iter().flat_map(|w| [&w.stdout, &w.stderr]));
    let samples = if let Samples::Sidecar { file, .. } = &record.samples { Some(file) } else { None };
    let metrics = record.metrics.values().filter_map(|m| m.samples_sidecar.as_ref());
    samples.into_iter().chain(metrics).chain(streams.filter_map(|s| s.sidecar.as_ref())).collect()
}

/// A sidecar as stored, checked against size and sha256. `dir` is the record's directory.
///
/// # Errors
/// In words: a name that isn't bare, a link, another size or content.
pub fn read(dir: &Path, sidecar: &Sidecar) -> Result<Vec<u8>, String> {
    let Sidecar { name, bytes, sha256, .. } = sidecar;
    let bare = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
    if !bare {
        return Err(format!("sidecar name {name:?} is not a bare file name"));
    }
    if *bytes > MOST_BYTES {
        return Err(format!("{name}: {bytes} bytes, the most is {MOST_BYTES}"));
    }
    let open = file::open(&dir.join(name), File::options().read(true));
    let mut content = Vec::new();
    let read = open.and_then(|file| file.take(bytes + 1).read_to_end(&mut content));
    read.map_err(|e| format!("{name}: {e}"))?;
    if content.len() as u64 != *bytes || sha256_hex(&content) != *sha256 {
        return Err(format!("{name}: its content is not the one that the record names"));
    }
    Ok(content)
}

/// Content of a sidecar, checked and decompressed.
///
/// # Errors
/// Those of [`read`]; compressed data that is none, or that comes out larger than any sidecar is.
pub fn unpack(dir: &Path, sidecar: &Sidecar) -> Result<Vec<u8>, String> {
    decompress(&read(dir, sidecar)?).map_err(|e| format!("{}: {e}", sidecar.name))
}

/// Decompressed content.
///
/// # Errors
/// It is none, or comes out larger than any sidecar is.
pub fn decompress(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    zstd::stream::read::Decoder::new(packed)?.take(MOST_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it comes out as more than {MOST_BYTES} bytes")));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_sidecar_outside_the_records_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join("link")).unwrap();
        let sidecar = |name: &str| Sidecar { name: name.into(), bytes: 1, sha256: String::new(), format: "zstd".into() };
        for name in ["../x", "/etc/hostname", "a/b", "", ".hidden"] {
            assert!(read(dir.path(), &sidecar(name)).unwrap_err().contains("bare"), "{name:?}");
        }
        assert!(read(dir.path(), &sidecar("link")).is_err());
    }

    #[test]
    fn a_changed_sidecar_is_told_from_the_right_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.zst"), b"abc").unwrap();
        let mut sidecar = Sidecar { name: "a.zst".into(), bytes: 3, sha256: sha256_hex(b"abc"), format: "zstd".into() };
        assert_eq!(read(dir.path(), &sidecar).unwrap(), b"abc");
        sidecar.sha256 = sha256_hex(b"abd");
        assert!(read(dir.path(), &sidecar).is_err());
    }
}
