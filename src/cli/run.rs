//! `isotherm run`.

use super::progress::Progress;
use super::words::{program, shell_word};
use super::{DEFAULT_RESULTS, RunArgs, complain, exit, runnable};
use crate::config::Draft;
use crate::run::{self, Filter, Options, RunError, Summary};
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::path::Path;

pub fn run(args: &RunArgs) -> u8 {
    let Draft { campaign, later } = match runnable(&args.file, &args.set.set) {
        Ok(draft) => draft,
        Err(code) => return code,
    };
    let options = match options(args, &campaign) {
        Ok(options) => options,
        Err((message, hint)) => {
            complain(&message, hint.as_deref());
            return exit::USAGE;
        }
    };
    let mut progress = Progress::new(args.json, args.place.results.join(&campaign.name), again(args));
    let result = run::run(&campaign, &args.place.results, &options, &mut |event| progress.hear(event));
    progress.end();
    match result {
        Ok(summary) => code(&summary, args.dry_run),
        Err(RunError::Later { rest: Some(rest), .. }) if let Some(errors) = later => {
            let hint = format!("`--filter {rest}` runs what is built; `isotherm plan` shows what all of it expands to");
            let code = super::refused(&errors.hinting(&hint));
            say!("next: {} --filter {rest}", again(args));
            code
        }
        Err(error) => refused(&error),
    }
}

fn options(args: &RunArgs, campaign: &crate::config::model::Campaign) -> Result<Options, (String, Option<String>)> {
    if let Some(device) = args.device.as_ref().filter(|d| !campaign.devices.contains_key(*d)) {
        return Err((no_device(device), Some(devices_of(campaign))));
    }
    let filter = |texts: &[String]| Filter::parse(texts).map_err(|e| (e.to_string(), None));
    Ok(Options {
        filter: filter(&args.filters)?,
        rerun: if args.reruns.is_empty() { None } else { Some(filter(&args.reruns)?) },
        fresh: args.fresh,
        device: args.device.clone(),
        limit: args.limit,
        jobs: args.jobs.map(NonZeroUsize::get),
        force: args.force,
        dry_run: args.dry_run,
    })
}

/// The device of `--device` that isn't one.
pub fn no_device(id: &str) -> String {
    format!("this campaign has no device `{id}`")
}

/// What it could have been.
pub fn devices_of(campaign: &crate::config::model::Campaign) -> String {
    let known: Vec<&str> = campaign.devices.keys().map(String::as_str).collect();
    format!("devices of this campaign: {}", known.join(", "))
}

/// The command that goes on with what this one leaves undone.
fn again(args: &RunArgs) -> String {
    let mut words: Vec<&OsStr> = vec![args.file.as_ref()];
    for (option, values) in [("--filter", &args.filters), ("--set", &args.set.set)] {
        words.extend(values.iter().flat_map(|value| [option, value].map(OsStr::new)));
    }
    words.extend(args.device.iter().flat_map(|id| ["--device", id].map(OsStr::new)));
    if args.place.results != Path::new(DEFAULT_RESULTS) {
        words.extend([OsStr::new("--results"), args.place.results.as_ref()]);
    }
    let words: Vec<String> = words.into_iter().map(shell_word).collect();
    format!("{} run {}", program(), words.join(" "))
}

/// What stopped the whole campaign, and its exit code.
pub fn refused(error: &RunError) -> u8 {
    complain(&error.to_string(), error.hint().as_deref());
    error.exit_code()
}

fn code(summary: &Summary, dry_run: bool) -> u8 {
    let Summary { jobs, ok, ran, collected, failed_reruns, not_given_back, devices_failed, .. } = summary;
    match summary.interrupted_by {
        Some(signal) => u8::try_from(128 + signal).unwrap_or(exit::INTERNAL),
        None if *devices_failed > 0 && summary.devices == *devices_failed && ran + collected == 0 => none(summary),
        None if *devices_failed > 0 || *failed_reruns > 0 || !not_given_back.is_empty() => exit::NOT_ALL,
        None if dry_run || ok == jobs => exit::OK,
        None => exit::NOT_ALL,
    }
}

/// Why no device could be used.
pub fn none(summary: &Summary) -> u8 {
    if summary.devices_refused.is_empty() { exit::NO_DEVICE } else { exit::USAGE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    #[test]
    fn what_goes_on_takes_the_same_jobs_to_the_same_place() {
        let line = "isotherm run a.yaml --fresh --limit 3 --filter threads=1 --set env.A=x --device here --results /tmp/r";
        let Ok(Cli { command: Command::Run(mut args) }) = Cli::try_parse_from(line.split(' ')) else { panic!("{line}") };
        args.set.set = vec!["threads=[1, 2]".into()];
        let again = again(&args);
        let rest = again.split_once(" run ").map(|(_, rest)| rest);
        assert_eq!(rest, Some("a.yaml --filter threads=1 --set 'threads=[1, 2]' --device here --results /tmp/r"));
    }
}
