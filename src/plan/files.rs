//! Which files of a device belong to a point, and what was answered about them.

use super::identity::DeviceReport;
use super::point::{Point, Work};
use crate::store::record::{RanFile, RanRole};
use isotherm_wire::inspect::{FileAnswer, FileFact, FileQuery, FileRole, ProgramAnswer, ProgramQuery};
use isotherm_wire::model::{Gguf, ModelHeader, Split};
use std::collections::{BTreeMap, BTreeSet};

/// What a program is asked for.
pub const HELP: &str = "--help";
pub const VERSION: &str = "--version";

/// What was found out about files of a device: query key → answer.
pub type Answers = BTreeMap<String, FileAnswer>;

/// A file of a point: in which role and under which name it is part of the identity.
#[derive(Debug, Clone)]
pub struct PointFile {
    pub part: Part,
    pub query: FileQuery,
    /// It is the model, or a file of it, which is copied to the device: whoever copies it has the answer.
    pub is_pushed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Program,
    /// Index into argv.
    Argument(usize),
    /// Index into the words of `flags`.
    Flag(usize),
    /// What options or variables of llama.cpp's tools name beside others, or with more.
    Listed(String),
    /// Pattern as written.
    Inputs(String),
    Model,
    /// Another file of a model in several, by its number from 2.
    OfModel(usize),
}

/// Everything that has to be looked up for a point.
#[must_use]
pub fn of_point(point: &Point) -> Vec<PointFile> {
    let query = |path: &str, role: FileRole| {
        let search_path = (role == FileRole::Program).then(|| point.env.get("PATH").cloned()).flatten();
        // The key is the whole question, so that equal questions of several points are asked once and answers are found offline.
        let key = format!("{role:?} {path} in {} by {}", point.base, search_path.as_deref().unwrap_or("default"));
        FileQuery { key, path: path.to_owned(), role, base: point.base.to_string(), search_path }
    };
    let pushed = point.pushed();
    let mut files = Vec::new();
    if let Some(model) = &point.model {
        files.push(PointFile { part: Part::Model, query: query(&model.path, FileRole::Data), is_pushed: pushed.is_some() });
        let others = other_parts(&model.path).into_iter().zip(2..);
        files.extend(others.map(|(path, number)| PointFile {
            part: Part::OfModel(number),
            query: query(&path, FileRole::Data),
            is_pushed: pushed.is_some(),
        }));
    }
    let of_llama = match &point.work {
        Work::LlamaBench(work) => Some((&work.program, &work.flags)),
        Work::LlamaServer(work) => Some((&work.program, &work.flags)),
        Work::Builtin { .. } | Work::Command(_) | Work::Later => None,
    };
    if let Some((program, flags)) = of_llama {
        files.push(PointFile { part: Part::Program, query: query(program, FileRole::Program), is_pushed: false });
        // Other models, such as an adapter or a draft.
        let words = flags.iter().enumerate().filter(|(_, word)| !word.starts_with('-'));
        files.extend(words.map(|(i, word)| PointFile { part: Part::Flag(i), query: query(word, FileRole::Argument), is_pushed: false }));
        let words = flags.iter().filter(|word| !word.starts_with('-')).flat_map(|word| listed(word).filter(move |file| file != word));
        let of_env = point.env.iter().filter(|(name, _)| name.starts_with("LLAMA_ARG_")).flat_map(|(_, value)| listed(value));
        let others: BTreeSet<String> = words.chain(of_env).collect();
        files.extend(others.into_iter().map(|path| PointFile {
            query: query(&path, FileRole::Argument),
            part: Part::Listed(path),
            is_pushed: false,
        }));
    }
    if let Work::Command(command) = &point.work {
        for (i, element) in command.argv.iter().enumerate() {
            let (part, role) = if i == 0 { (Part::Program, FileRole::Program) } else { (Part::Argument(i), FileRole::Argument) };
            let is_pushed = pushed.is_some_and(|texts| texts.is_model(i));
            files.push(PointFile { part, query: query(element, role), is_pushed });
        }
        let inputs = command.inputs.iter();
        files.extend(inputs.map(|p| PointFile { part: Part::Inputs(p.clone()), query: query(p, FileRole::Glob), is_pushed: false }));
    }
    files
}

/// What a value may name of files: itself, what it lists by commas, without scales (`FILE:0.5`), with all other files of those in several.
fn listed(value: &str) -> impl Iterator<Item = String> {
    let without_scale = |word: &str| match word.rsplit_once(':') {
        Some((file, scale)) if scale.parse::<f64>().is_ok() => file.to_owned(),
        _ => word.to_owned(),
    };
    let words: BTreeSet<String> =
        std::iter::once(value.to_owned()).chain(value.split(',').map(without_scale)).filter(|word| !word.is_empty()).collect();
    words.into_iter().flat_map(|word| other_parts(&word).into_iter().chain([word]))
}

/// The other files of a model in several, which llama.cpp finds by the name of the first one, `NAME-00001-of-00003.gguf`.
fn other_parts(path: &str) -> Vec<String> {
    let parts = || {
        let (name, count) = path.strip_suffix(".gguf")?.rsplit_once("-00001-of-")?;
        let n: u32 = count.parse().ok().filter(|_| count.len() == 5)?;
        Some((2..=n).map(|part| format!("{name}-{part:05}-of-{count}.gguf")).collect())
    };
    parts().unwrap_or_default()
}

/// What the program of a point is asked for before it runs: which options it has, and its version. Empty for a program of whose options
/// nothing is known.
#[must_use]
pub fn asked(point: &Point) -> Vec<ProgramQuery> {
    if !matches!(point.work, Work::LlamaBench(_) | Work::LlamaServer(_)) {
        return Vec::new();
    }
    let program = of_point(point).into_iter().find(|file| file.part == Part::Program).map(|file| file.query);
    // Of its variables those that say where its libraries are.
    let env: BTreeMap<String, String> =
        point.env.iter().filter(|(name, _)| name.starts_with("LD_")).map(|(name, value)| (name.clone(), value.clone())).collect();
    let query = |program: &FileQuery, arg: &str| {
        let key = format!("{} {arg} {env:?}", program.key);
        ProgramQuery { key, program: program.clone(), args: vec![arg.into()], env: env.clone() }
    };
    program.iter().flat_map(|program| [query(program, HELP), query(program, VERSION)]).collect()
}

/// What the program of a point said to this; `None` = it wasn't asked, or said nothing.
#[must_use]
pub fn said<'r>(point: &Point, arg: &str, report: &'r DeviceReport) -> Option<&'r str> {
    let query = asked(point).into_iter().find(|query| query.args == [arg])?;
    match report.programs.get(&query.key)? {
        ProgramAnswer::Said(text) => Some(text),
        ProgramAnswer::Silent(_) => None,
    }
}

/// The model of a point as found, of one in several files the first with what the headers of all say together; `Err` = it or another file of
/// it is not there, in the system's words, or it is a part of one; `None` = not asked yet, or the point has none.
#[must_use]
pub fn model<'a>(point: &Point, answers: &'a Answers) -> Option<Result<FileFact, String>> {
    let (mut found, mut wrong) = (Vec::new(), None);
    for PointFile { part, query, .. } in of_point(point) {
        if !matches!(part, Part::Model | Part::OfModel(_)) {
            continue;
        }
        let why = match answers.get(&query.key)? {
            FileAnswer::Found(facts) => {
                found.extend(facts.first());
                continue;
            }
            FileAnswer::Missing(why) => why.as_str(),
            FileAnswer::NotAFile => "not a regular file",
        };
        let why = if part == Part::Model { why.to_owned() } else { format!("{}: {why}", query.path) };
        wrong = wrong.or(Some(why));
    }
    let gguf = |fact: &&'a FileFact| if let Some(ModelHeader::Gguf(gguf)) = &fact.header { Some(&**gguf) } else { None };
    let headers: Option<Vec<&Gguf>> = found.iter().map(gguf).collect();
    let together = headers.and_then(|headers| Gguf::of_files(&headers)).map(|gguf| ModelHeader::Gguf(Box::new(gguf)));
    let split = found.first().and_then(|first| gguf(first)?.split).filter(|_| matches!(point.work, Work::LlamaBench(_) | Work::LlamaServer(_)));
    let alone = split.filter(|split| (split.part, split.of) != (1, found.len() as u64)).map(alone);
    let model = found.first().map(|first| FileFact { header: together.or_else(|| first.header.clone()), ..(*first).clone() });
    wrong.or(alone).map(Err).or(model.map(Ok))
}

/// Why a file that says to be one of several isn't a model: llama.cpp finds the others by its name.
fn alone(Split { part, of }: Split) -> String {
    format!("file {part} of {of} of a model, by its header; name the first one, as NAME-00001-of-{of:05}.gguf, with the others beside it")
}

/// Of all files of a point's model together; `None` where one of them isn't there or wasn't asked for yet.
#[must_use]
pub fn model_bytes(point: &Point, answers: &Answers) -> Option<u64> {
    let files = of_point(point).into_iter().filter(|file| matches!(file.part, Part::Model | Part::OfModel(_)));
    let bytes = |file: PointFile| match answers.get(&file.query.key)? {
        FileAnswer::Found(facts) => facts.first().map(|fact| fact.bytes),
        FileAnswer::Missing(_) | FileAnswer::NotAFile => None,
    };
    point.model.as_ref().and_then(|_| files.map(bytes).sum())
}

/// Files that take part in a run of a point, as they stand in its record; without the model.
#[must_use]
pub fn ran(point: &Point, answers: &Answers) -> Vec<RanFile> {
    let mut files = Vec::new();
    for PointFile { part, query, .. } in of_point(point) {
        let Some(FileAnswer::Found(facts)) = answers.get(&query.key) else { continue };
        for (i, file) in facts.iter().enumerate() {
            let role = match &part {
                Part::Model => continue,
                Part::Program if i == 0 => RanRole::Program,
                Part::Program => RanRole::Interpreter,
                Part::Argument(_) | Part::Flag(_) | Part::Listed(_) => RanRole::Argument,
                Part::Inputs(_) | Part::OfModel(_) => RanRole::Input,
            };
            files.push(RanFile { role, name: query.path.clone(), file: file.clone() });
        }
    }
    files
}

/// A question about a library that an earlier record says was mapped; `path` as it stands there, `base` of the point.
#[must_use]
pub fn library(path: &str, base: &str) -> FileQuery {
    let below = path.strip_prefix("$CAMPAIGN/");
    let base = if below.is_some() { base } else { "/" };
    let key = format!("library {path} in {base}");
    FileQuery { key, path: below.unwrap_or(path).to_owned(), role: FileRole::Data, base: base.to_owned(), search_path: None }
}
