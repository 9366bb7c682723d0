//! Model files below a few directories: so deep and so many, and no further.

use crate::dirs;
use crate::inspect::gguf;
use isotherm_wire::model::{Gguf, ModelHeader};
use isotherm_wire::search::{Finding, Format, ModelFile, Place};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Entries looked at in all; a home directory can have millions.
const MOST_ENTRIES: usize = 50_000;
/// Directories that hold much, and nobody's models.
const PASSED_OVER: [&str; 8] = ["node_modules", "target", "__pycache__", "site-packages", "dist-packages", "proc", "sys", "dev"];

/// Look in these places; models larger than the memory are left out.
#[must_use]
pub fn find(places: &[Place], memory_bytes: Option<u64>) -> Finding {
    let mut finding = Finding::default();
    let mut seen = BTreeSet::new();
    let mut left = MOST_ENTRIES;
    for place in places {
        let dir = dirs::expand_home(&place.dir);
        if let (true, Err(why)) = (place.named, fs::read_dir(&dir)) {
            finding.left_out.push((dir.display().to_string(), why.to_string()));
        }
        look(&dir, place.depth, &mut left, &mut |path| {
            let Some(format) = format_of(path) else { return };
            // A link to a model elsewhere is a model here; the same file twice is one.
            let Ok(path) = fs::canonicalize(path) else { return };
            if !seen.insert(path.clone()) {
                return;
            }
            match usable(&path, format, memory_bytes) {
                Ok(bytes) => finding.models.push(ModelFile { format, path: path.display().to_string(), bytes }),
                Err(why) => finding.left_out.push((path.display().to_string(), why)),
            }
        });
    }
    finding.models.sort_by(|a, b| (a.bytes, &a.path).cmp(&(b.bytes, &b.path)));
    finding.cut_short = left == 0;
    finding
}

fn look(dir: &Path, depth: usize, left: &mut usize, take: &mut dyn FnMut(&Path)) {
    let mut dirs = Vec::new();
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if *left == 0 {
            break;
        }
        *left -= 1;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let Ok(kind) = entry.file_type() else { continue };
        // Links to directories aren't followed: they lead in circles.
        if kind.is_dir() {
            if depth > 0 && !name.starts_with('.') && !PASSED_OVER.contains(&name.as_ref()) {
                dirs.push(entry.path());
            }
        } else {
            files.push(entry.path());
        }
    }
    files.sort();
    dirs.sort();
    files.iter().for_each(|file| take(file));
    dirs.iter().for_each(|dir| look(dir, depth - 1, left, take));
}

fn format_of(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "onnx" => Some(Format::Onnx),
        "gguf" => Some(Format::Gguf),
        _ => None,
    }
}

/// Its length, or why it can't be used.
fn usable(path: &Path, format: Format, memory_bytes: Option<u64>) -> Result<u64, String> {
    let meta = fs::metadata(path).map_err(|e| e.to_string())?;
    if !meta.is_file() {
        return Err("is no regular file".into());
    }
    // Placeholders and variables of a campaign file are written with these.
    let Some(text) = path.to_str() else { return Err("has a path that is no UTF-8".into()) };
    if text.contains(['{', '}', '$']) || text.chars().any(char::is_control) {
        return Err("has a path with characters that mean something in a campaign file".into());
    }
    if meta.len() == 0 {
        return Err("is empty".into());
    }
    if let Some(memory) = memory_bytes.filter(|memory| meta.len() > *memory) {
        return Err(format!("has {:.1} GiB, the memory {:.1} GiB", gib(meta.len()), gib(memory)));
    }
    if format == Format::Gguf {
        let mut magic = [0; 4];
        File::open(path).and_then(|mut file| file.read_exact(&mut magic)).map_err(|e| e.to_string())?;
        if magic != *b"GGUF" {
            return Err("does not begin like a GGUF file".into());
        }
        if let Some(why) = part_of_something(path).or_else(|| without_tokens(path, meta.len())) {
            return Err(why.into());
        }
    }
    Ok(meta.len())
}

/// GGUF files that are no model by themselves, told by the names that llama.cpp's own tools give them.
fn part_of_something(path: &Path) -> Option<&'static str> {
    let stem = path.file_stem()?.to_str()?.to_ascii_lowercase();
    if stem.starts_with("ggml-vocab") {
        return Some("is a vocabulary without weights");
    }
    if stem.starts_with("mmproj") || stem.contains("-mmproj") {
        return Some("is the image encoder of another model");
    }
    let (before, _) = stem.rsplit_once("-of-")?;
    let number = before.rsplit_once('-')?.1;
    (number.len() == 5 && number != "00001").then_some("is a later part of a model in several files")
}

/// Whole files for another model: an adapter, a control vector, an encoder.
fn without_tokens(path: &Path, bytes: u64) -> Option<&'static str> {
    let Some(ModelHeader::Gguf(gguf)) = gguf::header(path, bytes) else { return None };
    (!gguf.tables.contains_key(Gguf::EMBEDDINGS)).then_some("has no embeddings of tokens: it is for another model")
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn models_are_found_once_the_smallest_first_and_the_rest_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write("large.onnx", &[1; 300]);
        write("models/small.ONNX", &[1; 100]);
        write("a/b/c/deep.onnx", b"too deep");
        write(".hidden/x.onnx", b"x");
        write("huge.onnx", &[1; 2000]);
        write("empty.onnx", b"");
        write("odd{}.onnx", b"x");
        write("q.gguf", b"GGUF and so on");
        write("fake.gguf", b"<html>");
        // Version 3 and nothing in it: a control vector has no embeddings of tokens either.
        write("vector.gguf", &[b"GGUF\x03\0\0\0".to_vec(), vec![0; 24]].concat());
        write("m-00002-of-00003.gguf", b"GGUF");
        std::os::unix::fs::symlink("large.onnx", dir.path().join("link.onnx")).unwrap();
        std::os::unix::fs::symlink(".", dir.path().join("circle")).unwrap();
        std::os::unix::fs::symlink("gone", dir.path().join("gone.onnx")).unwrap();
        let place = |dir: &Path| Place { dir: dir.display().to_string(), depth: 2, named: true };
        let places = [place(dir.path()), place(&dir.path().join("models")), place(&dir.path().join("nowhere"))];
        let finding = find(&places, Some(1000));
        let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
        let models: Vec<String> = finding.models.iter().map(|m| name(&m.path)).collect();
        assert_eq!(models, ["q.gguf", "small.ONNX", "large.onnx"]);
        let mut left_out: Vec<String> = finding.left_out.iter().map(|(path, _)| name(path)).collect();
        left_out.sort();
        assert_eq!(left_out, ["empty.onnx", "fake.gguf", "huge.onnx", "m-00002-of-00003.gguf", "nowhere", "odd{}.onnx", "vector.gguf"]);
        assert!(finding.left_out.iter().all(|(_, why)| !why.is_empty()) && !finding.cut_short);
    }
}
