//! Pages that are made from tables and types say what the tables and types say.

use isotherm::reference::Page;
use std::fs;
use std::path::Path;

#[test]
fn every_generated_page_is_what_its_generator_prints() {
    for page in Page::ALL {
        let stored = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page.file())).unwrap_or_default();
        assert!(stored == page.markdown(), "{file} has drifted: cargo run -q -- reference {name} > {file}", file = page.file(), name = page.name());
    }
}

#[test]
fn no_cell_of_a_generated_table_breaks_its_row() {
    for page in Page::ALL {
        let mut width = None;
        for line in page.markdown().lines() {
            let cells = line.starts_with("| ").then(|| line.replace("\\|", "").matches('|').count());
            assert!(cells.is_none() || width.is_none() || cells == width, "{}: {line}", page.file());
            width = if line.starts_with('|') { cells.or(width) } else { None };
        }
    }
}

/// As sites that show Markdown make it of a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

#[test]
fn every_json_schema_is_what_its_generator_prints() {
    for (name, schema) in [("record", isotherm::store::seal::schema()), ("campaign", isotherm::config::campaign_schema())] {
        let file = format!("configs/schema/{name}.schema.json");
        let stored = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&file)).unwrap_or_default();
        assert!(stored == format!("{schema:#}\n"), "{file} has drifted: cargo run -q -- schema {name} > {file}");
    }
}

#[test]
fn every_link_of_a_generated_page_leads_somewhere() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    for page in Page::ALL {
        let text = page.markdown();
        let headings: Vec<String> = text.lines().filter_map(|line| Some(anchor(line.strip_prefix("## ")?))).collect();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            match target.strip_prefix('#') {
                Some(anchor) => assert!(headings.iter().any(|heading| heading == anchor), "{}: {target}", page.file()),
                None => assert!(docs.join(target.split('#').next().unwrap_or_default()).exists(), "{}: {target}", page.file()),
            }
        }
    }
}
