//! Readiness: whether a night could begin here, looked at and not tried; nothing is made, written or changed.
//!
//! Takes what a campaign needs, gives facts in the system's words; must not know which of them are bad.

mod steps;
mod system;

use super::Surroundings;
use super::execute::Runner;
use super::trial::Prober;
use crate::dirs::{self, StateDir};
use crate::inspect::files::{self, DEFAULT_PATH};
use crate::inspect::machine::kib;
use crate::keep::quarantine::Quarantine;
use crate::models::Cache;
use crate::prepare::JOURNAL_FILE;
use crate::sys;
use isotherm_wire::inspect::{FileAnswer, FileQuery, FileRole};
use isotherm_wire::models::Cached;
use isotherm_wire::probe::Cause;
use isotherm_wire::readiness::{FileLook, Needs, Place, Readiness};
use std::path::{Path, PathBuf};

pub fn look(prober: &Prober, around: &Surroundings, runner: &Runner, needs: &Needs) -> Readiness {
    let State { dir: state, fault, models, quarantine, borrowed } = state(prober, needs.state_dir.clone());
    let bin = std::env::current_exe().ok().and_then(|agent| Some(agent.parent()?.to_owned())).unwrap_or_default();
    Readiness {
        files: needs.files.iter().map(|query| (query.key.clone(), file(prober, query))).collect(),
        bin: place(prober, &bin, None),
        models,
        quarantine,
        borrowed,
        state: place(prober, &state, fault),
        mem_available_bytes: prober.text(&prober.at("proc/meminfo")).as_deref().and_then(|text| kib(text, "MemAvailable")),
        cpus: sys::affinity().map(|cpus| cpus.iter().filter_map(|&cpu| u32::try_from(cpu).ok()).collect()),
        steps: needs.steps.iter().map(|step| steps::look(prober, runner, step)).collect(),
        login: system::login(prober),
        scheduled: system::scheduled(prober, around, runner),
        processes: system::processes(prober, &needs.processes),
        trip_points: system::trip_points(prober),
    }
}

/// The state directory's root, and what an earlier keeper left there.
struct State {
    dir: PathBuf,
    /// Why it can't be used, or doesn't answer.
    fault: Option<String>,
    models: Vec<Cached>,
    quarantine: Option<String>,
    borrowed: bool,
}

fn state(prober: &Prober, configured: Option<String>) -> State {
    let first = dirs::candidates(configured.as_deref()).swap_remove(0);
    let looked = prober.within(move || {
        let (StateDir { root, path }, fault) = dirs::look(configured.as_deref());
        let models = Cache::below(&root).list().unwrap_or_default();
        Ok(State { dir: root, fault, models, quarantine: Quarantine::open(&path).look(), borrowed: path.join(JOURNAL_FILE).exists() })
    });
    looked.unwrap_or_else(|why| State { dir: first, fault: Some(why.reason), models: Vec::new(), quarantine: None, borrowed: false })
}

/// A file on a dead network file system can't be told from one that is missing, and holds whoever asks: both are unknown.
fn file(prober: &Prober, query: &FileQuery) -> FileLook {
    let asked = query.clone();
    match prober.within(move || Ok(look_at(&asked))) {
        Ok(Ok((files, bytes))) => FileLook::Found { files, bytes },
        Ok(Err(why)) => FileLook::Missing(why),
        Err(why) if matches!(why.cause, Cause::NoAnswer | Cause::NotTried) => FileLook::Unknown(why.reason),
        Err(why) => FileLook::Missing(why.reason),
    }
}

/// Number and bytes of the files that a question is about.
fn look_at(query: &FileQuery) -> Result<(u64, u64), String> {
    let paths = files::resolve(query).map_err(|answer| match answer {
        FileAnswer::Missing(why) => why,
        FileAnswer::Found(_) | FileAnswer::NotAFile => "no regular file".into(),
    })?;
    let mut bytes = 0;
    for path in &paths {
        let named = |e: std::io::Error| if query.role == FileRole::Glob { format!("{}: {e}", path.display()) } else { e.to_string() };
        bytes += sys::open_regular(path).and_then(|file| file.metadata()).map_err(named)?.len();
    }
    if let (FileRole::Program, Some(program)) = (query.role, paths.first()) {
        sys::may_execute(program).map_err(|e| format!("it can't be executed: {e}"))?;
        if let Some(Err(e)) = files::interpreter(program, query.search_path.as_deref().unwrap_or(DEFAULT_PATH)) {
            return Err(format!("the program that runs this script is missing: {e}"));
        }
    }
    Ok((paths.len() as u64, bytes))
}

/// The directory, or where it would be made.
fn place(prober: &Prober, path: &Path, fault: Option<String>) -> Place {
    let dir = path.to_owned();
    let space = prober.within(move || Ok(dirs::nearest(&dir).and_then(|there| sys::free_space(there).ok())));
    let fault = fault.or(space.as_ref().err().map(|why| why.reason.clone()));
    let space = space.ok().flatten();
    Place { path: path.display().to_string(), free_bytes: space.map(|(bytes, _)| bytes), free_files: space.and_then(|(_, files)| files), fault }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::inspect::machine_key;
    use crate::trees::{fifo, release};
    use std::time::Duration;

    #[test]
    fn a_state_directory_that_does_not_answer_is_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join(machine_key());
        std::fs::create_dir(&own).unwrap();
        let hangs = own.join("quarantine.json");
        fifo(&hangs);
        let prober = Prober::with_deadlines(Path::new("/"), Duration::from_millis(50), Duration::from_secs(60));
        let looked = state(&prober, Some(dir.path().display().to_string()));
        release(&hangs);
        assert_eq!((looked.dir.as_path(), looked.fault.as_deref()), (dir.path(), Some("no answer within 50 ms")));
    }
}
