//! `docs/first-steps.md` is walked: every command of its console blocks is executed in their order, and what is printed there has to be
//! what the program prints, numbers aside. A block that says `example` shows one machine: it is executed, and not compared.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

use lab::Lab;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const PAGE: &str = include_str!("../docs/first-steps.md");

/// Stands for any number of lines; at the end of a line, for its rest.
const ELLIPSIS: &str = "…";

/// Where the reader interrupts the program.
const CTRL_C: &str = "^C";

/// A command of the page, and what stands below it.
struct Step {
    /// Of the page, from 1.
    line: usize,
    command: String,
    printed: Vec<String>,
    is_example: bool,
}

#[test]
fn the_first_steps_print_what_the_page_says() {
    let lab = Lab::new();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::create_dir(lab.path("bin")).unwrap();
    fs::create_dir(lab.path("results")).unwrap();
    symlink(env!("CARGO_BIN_EXE_isotherm"), lab.path("bin/isotherm")).unwrap();
    for (from, to) in [("configs", "."), ("results/reference", "results")] {
        assert!(Command::new("cp").arg("-r").arg(repository.join(from)).arg(lab.path(to)).status().unwrap().success());
    }
    let steps = steps(PAGE);
    assert!(steps.len() > 10, "the page lost its commands");
    for step in steps {
        let (text, code) = walk(&lab, &step);
        assert_eq!(code, Some(expected_code(&step)), "line {}: {}\n{text}", step.line, step.command);
        let (said, found) = (masked(step.printed.iter().map(String::as_str)), masked(text.lines()));
        let same = step.is_example || fits(&said, &found);
        assert!(same, "line {}: $ {}\nthe page says\n{}\n\nit prints\n{}", step.line, step.command, said.join("\n"), found.join("\n"));
    }
}

/// The console blocks, command by command.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut block = None;
    for (index, line) in page.lines().enumerate() {
        match (block, line) {
            (None, "```console") => block = Some(false),
            (None, "```console example") => block = Some(true),
            (Some(_), "```") => block = None,
            (None, _) => {}
            (Some(is_example), line) => match line.strip_prefix("$ ") {
                Some(command) => steps.push(Step { line: index + 1, command: command.to_owned(), printed: Vec::new(), is_example }),
                None => steps.last_mut().expect("a block begins with a command").printed.push(line.to_owned()),
            },
        }
    }
    steps
}

/// By what is printed: an error, an interruption, or neither.
fn expected_code(step: &Step) -> i32 {
    let has = |what: &str| step.printed.iter().any(|line| line.starts_with(what));
    match (has("error:"), has(CTRL_C)) {
        (true, _) => 2,
        (_, true) => 128 + libc::SIGINT,
        _ => 0,
    }
}

/// Execute a step as a reader at a terminal would: both streams, in their order.
fn walk(lab: &Lab, step: &Step) -> (String, Option<i32>) {
    let surroundings = lab.isotherm(&[]);
    let interrupts = step.printed.iter().any(|line| line == CTRL_C);
    let replaced = if interrupts { "exec " } else { "" };
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("exec 2>&1; {replaced}{}", step.command)).current_dir(lab.path("")).env_clear();
    shell.envs(surroundings.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", lab.path("bin").display()));
    let mut child = shell.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap) {
        if interrupts && line.contains('✓') && !text.contains('✓') {
            interrupt(&child);
        }
        text += &line;
        text.push('\n');
    }
    (text, child.wait().unwrap().code())
}

fn interrupt(child: &Child) {
    // SAFETY: plain integers; the child has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
}

/// Lines without what differs from machine to machine and from run to run: numbers, hashes, how wide a column is, how a run's spread is
/// judged, and empty lines.
fn masked<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    let judged = |line: String| match line.strip_prefix("! ") {
        Some(row) if row.ends_with(", spread_high") => format!("! {}", row.trim_end_matches(", spread_high")),
        Some(row) if row.ends_with(" spread_high") => format!("✓ {} ok", row.trim_end_matches(" spread_high")),
        _ => line,
    };
    let timed = |line: String| line.replace("# min", "# s").replace("# ms", "# s").replace("# h # s", "# s");
    lines.map(|line| timed(judged(words(line)))).filter(|line| !line.is_empty() && line != CTRL_C).collect()
}

fn word(word: &str) -> String {
    if word.chars().all(|c| c == '─') {
        return "─".into();
    }
    // `4bc0…`, the beginning of a hash.
    let bare = word.trim_matches(['(', ')', ',', ';']);
    if bare.strip_suffix(ELLIPSIS).is_some_and(|hash| hash.len() == 4 && hash.chars().all(|c| c.is_ascii_hexdigit())) {
        return word.replace(bare, "hash");
    }
    let mut masked = String::new();
    for (index, c) in word.char_indices() {
        let in_number = c == '.' && masked.ends_with('#') && word[index + 1..].starts_with(|c: char| c.is_ascii_digit());
        match c {
            _ if in_number => {}
            '0'..='9' if masked.ends_with('#') => {}
            '0'..='9' => masked.push('#'),
            c => masked.push(c),
        }
    }
    masked
}

/// Is it what the page says?
fn fits(said: &[String], found: &[String]) -> bool {
    match said.split_first() {
        None => found.is_empty(),
        Some((line, rest)) if line == ELLIPSIS => (0..=found.len()).any(|skipped| fits(rest, &found[skipped..])),
        Some((line, rest)) => found.split_first().is_some_and(|(first, others)| line_fits(line, first) && fits(rest, others)),
    }
}

fn line_fits(said: &str, found: &str) -> bool {
    said == found || said.strip_suffix(ELLIPSIS).is_some_and(|start| found.starts_with(start))
}

#[test]
fn numbers_may_differ_and_words_may_not() {
    let fit = |said: &str, found: &str| fits(&masked(said.lines()), &masked(found.lines()));
    assert!(fit("a  1.5 ms ±3 %\n──\n…\nend", "a 12 ms  ±0.25 %\n\n────\nx\ny\nend"));
    assert!(fit("✓  m  1.5  ok", "!  m  77  spread_high") && fit("x (4bc0… → 11ff…)", "x (aaaa… → 0123…)"));
    assert!(fit("about 2 min\nhere: …", "about 33 s\nhere: a machine"));
    assert!(!fit("a 1 ms", "b 1 ms") && !fit("a", "a\nb") && !fit("…\na", "b") && !fit("✓ m 1 ok", "! m 1 degraded"));
}
