//! When samples were taken: takes the lines of the tool with the times at which they arrived, gives start and end of each sample. How long a
//! sample took is the tool's word; where it lies on the device's clock is the lines'.

use super::output::Test;
use crate::backend::output::Stream;

/// A sample may be longer than what lies between its lines by so much of it, and by so many ns: the line that starts it can arrive late.
const MOST_LATE: f64 = 0.01;
const MOST_LATE_NS: f64 = 20e6;

/// One after the other, two samples may seem to overlap by so much of the later one, where its lines arrived late; more is no place of it.
const MOST_OVERLAP: f64 = 0.1;

/// A line that arrived.
struct Line<'a> {
    at_ns: u64,
    text: &'a str,
}

/// Start and end of each sample of each test; none of a test of which a line is missing, or doesn't fit.
///
/// `--progress` prints a line right after the clock of a sample was started. The sample ends so long after as the tool says, yet not after
/// the next line of the tool, which it prints only then: where the first line arrived late, the next one tells. Nor after the tool's own end,
/// `exit_ns`.
#[must_use]
pub fn of(tests: &[Test], stdout: &Stream, stderr: &Stream, exit_ns: u64) -> Vec<Vec<(u64, u64)>> {
    let marks: Vec<Line<'_>> = lines(stderr).into_iter().filter(|line| line.text.starts_with("llama-bench: benchmark ")).collect();
    let results: Vec<Line<'_>> = lines(stdout).into_iter().filter(|line| line.text.starts_with('{')).collect();
    let all = |(place, test): (usize, &Test)| spans(place, test, &marks, results.get(place)?.at_ns.min(exit_ns));
    tests.iter().enumerate().map(|pair| all(pair).unwrap_or_default()).collect()
}

/// `None` where nobody stamped them, or their middle is gone.
fn lines(stream: &Stream) -> Vec<Line<'_>> {
    let text = std::str::from_utf8(&stream.kept).ok().filter(|_| stream.cut_at.is_none()).unwrap_or_default();
    text.lines().zip(&stream.line_ns).map(|(text, &at_ns)| Line { at_ns, text }).collect()
}

fn spans(place: usize, test: &Test, marks: &[Line<'_>], over_ns: u64) -> Option<Vec<(u64, u64)>> {
    let phase = if test.n_gen == 0 { "prompt" } else { "generation" };
    let n = test.samples_ns.len();
    let span = |(sample, &ns): (usize, &u64)| {
        let said = format!("benchmark {}/", place + 1);
        let run = format!(": {phase} run {}/{n}", sample + 1);
        let at = marks.iter().position(|mark| mark.text.contains(&said) && mark.text.ends_with(&run))?;
        let next_ns = marks.get(at + 1).map_or(u64::MAX, |next| next.at_ns).min(over_ns);
        let start_ns = marks[at].at_ns;
        let late_ns = (start_ns + ns).saturating_sub(next_ns);
        let end_ns = (start_ns + ns).min(next_ns);
        (late_ns as f64 <= MOST_LATE_NS + MOST_LATE * ns as f64).then(|| (end_ns.saturating_sub(ns), end_ns))
    };
    let spans: Vec<(u64, u64)> = test.samples_ns.iter().enumerate().map(span).collect::<Option<_>>()?;
    let follows = |pair: &[(u64, u64)]| pair[0].1.saturating_sub(pair[1].0) as f64 <= MOST_OVERLAP * (pair[1].1 - pair[1].0) as f64;
    spans.windows(2).all(follows).then_some(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(lines: &[(u64, &str)]) -> Stream {
        let kept: String = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
        Stream {
            bytes: kept.len() as u64,
            kept: kept.into_bytes(),
            cut_at: None,
            line_ns: lines.iter().map(|(at_ms, _)| at_ms * 1_000_000).collect(),
        }
    }

    fn test(n_prompt: u64, n_gen: u64, samples_ms: &[u64]) -> Test {
        let samples_ns = samples_ms.iter().map(|ms| ms * 1_000_000).collect();
        Test {
            build_commit: String::new(),
            build_number: 1,
            n_prompt,
            n_gen,
            n_depth: 0,
            samples_ns,
            avg_ts: 1.0,
            model_size: None,
            model_filename: None,
            settings: Default::default(),
        }
    }

    fn in_ms(spans: Vec<Vec<(u64, u64)>>) -> Vec<Vec<(u64, u64)>> {
        spans.into_iter().map(|test| test.into_iter().map(|(start, end)| (start / 1_000_000, end / 1_000_000)).collect()).collect()
    }

    const STDERR: [(u64, &str); 9] = [
        (0, "llama-bench: benchmark 1/2: starting"),
        (100, "llama-bench: benchmark 1/2: warmup prompt run"),
        (200, "llama-bench: benchmark 1/2: prompt run 1/2"),
        (300, "llama-bench: benchmark 1/2: depth run 2/2 (cached)"),
        (310, "llama-bench: benchmark 1/2: prompt run 2/2"),
        (400, "llama-bench: benchmark 2/2: starting"),
        (500, "llama-bench: benchmark 2/2: warmup generation run"),
        (550, "llama-bench: benchmark 2/2: generation run 1/2"),
        (900, "llama-bench: benchmark 2/2: generation run 2/2"),
    ];

    #[test]
    fn a_sample_lies_behind_its_line_and_before_the_next_one() {
        let stdout = stream(&[(395, "{\"n_prompt\": 64}"), (1200, "{\"n_gen\": 16}")]);
        let tests = [test(64, 0, &[95, 80]), test(0, 16, &[340, 299])];
        // The first ones as the tool says; of the last the line arrived 5 ms late, and its result tells its end.
        let mut stderr = STDERR;
        stderr[8].0 = 906;
        let found = in_ms(of(&tests, &stdout, &stream(&stderr), u64::MAX));
        assert_eq!(found, [vec![(200, 295), (310, 390)], vec![(550, 890), (901, 1200)]]);
    }

    #[test]
    fn a_warning_of_the_tool_in_the_middle_of_a_sample_is_no_mark() {
        let mut lines = STDERR.to_vec();
        lines.insert(8, (600, "W something"));
        let stdout = stream(&[(395, "{}"), (1200, "{}")]);
        let found = in_ms(of(&[test(64, 0, &[95, 80]), test(0, 16, &[340, 299])], &stdout, &stream(&lines), u64::MAX));
        assert_eq!(found[1], [(550, 890), (900, 1199)]);
    }

    #[test]
    fn a_test_without_its_lines_or_with_samples_that_do_not_fit_between_them_has_no_spans() {
        let stdout = stream(&[(395, "{}"), (1200, "{}")]);
        let tests = |decode: &[u64]| [test(64, 0, &[95, 80]), test(0, 16, decode)];
        // Both lines of decode arrived with its result: nobody knows which sample was when.
        let mut at_once = STDERR;
        (at_once[7].0, at_once[8].0) = (1200, 1200);
        assert_eq!(of(&tests(&[10, 10]), &stdout, &stream(&at_once), u64::MAX)[1], []);
        // The tool has ended before its last lines were read.
        let ended = of(&tests(&[340, 290]), &stdout, &stream(&STDERR), 1_195_000_000);
        assert_eq!(in_ms(ended)[1], [(550, 890), (900, 1190)]);
        let earlier = of(&tests(&[340, 290]), &stdout, &stream(&STDERR), 1_185_000_000);
        assert_eq!(in_ms(earlier)[1], [(550, 890), (895, 1185)]);
        // Half a second can't lie between lines that are 350 ms apart.
        assert_eq!(of(&tests(&[500, 299]), &stdout, &stream(&STDERR), u64::MAX)[1], []);
        assert_eq!(of(&tests(&[340, 299]), &stdout, &stream(&STDERR[..8]), u64::MAX)[1], []);
        assert_eq!(of(&tests(&[340, 299]), &stdout, &stream(&[]), u64::MAX), [vec![], vec![]]);
        let cut = Stream { cut_at: Some(3), ..stream(&STDERR) };
        assert_eq!(of(&tests(&[340, 299]), &stdout, &cut, u64::MAX), [vec![], vec![]]);
    }
}
