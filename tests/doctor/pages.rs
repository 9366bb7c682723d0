//! The pages that name checks, issues and reasons name those that there are.

use isotherm::doctor::Check;
use isotherm::registry::Code;
use isotherm::store::record::Reason;
use regex::Regex;
use std::fs;
use std::path::Path;

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name)).unwrap()
}

#[test]
fn every_check_stands_with_what_it_looks_at_in_the_page_of_the_command() {
    let page = page("cli.md");
    for entry in Check::ALL.iter().map(|check| check.entry()) {
        let row = format!("| `{}` | {} |", entry.name, entry.is);
        assert!(page.contains(&row), "docs/cli.md lacks {row}");
    }
}

#[test]
fn every_line_of_the_low_noise_page_says_who_tells_of_it() {
    let page = page("low-noise.md");
    let told = Regex::new(r"(doctor|issue|reason) `([a-z_]+)`").unwrap();
    let is_reason = |name: &str| serde_json::from_value::<Reason>(name.into()).is_ok();
    for line in page.lines().filter(|line| line.starts_with("* ")) {
        let (_, tellers) = line.trim_end_matches(')').rsplit_once(" (").unwrap_or_else(|| panic!("nobody tells of: {line}"));
        assert!(told.is_match(tellers), "nobody tells of: {line}");
        for teller in told.captures_iter(tellers) {
            let name = &teller[2];
            let is_known = match &teller[1] {
                "doctor" => Check::ALL.iter().any(|check| check.entry().name == name),
                "issue" => Code::ALL.iter().any(|code| code.entry().code == name),
                _ => is_reason(name),
            };
            assert!(is_known, "there is no {} `{name}`: {line}", &teller[1]);
        }
    }
}
