//! Campaigns whose words are odd: paths, arguments, variables, names and directories. They run and see exactly these bytes, or are refused by
//! name; no shell ever reads them.

use crate::lab::{Lab, Ran, User, eventually, for_each_user};
use crate::stranger::is_harmless;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a shell, a terminal, an option parser or a splitter would take for something else.
const WORDS: [&str; 20] = [
    "a b",
    " ",
    "",
    "it's",
    "\"q\"",
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "$HOME",
    "*",
    "~",
    "a\nb\n",
    "\t",
    "-n",
    "--help",
    "--",
    "\\x\\",
    "\u{1b}[2J\u{9b}\u{7f}\u{1}",
    "é\u{202e}\u{feff}漢",
    "%s%n",
];

/// One word from a name: what can't stand in the name of a file stays out.
fn file_name() -> String {
    WORDS.concat().replace('/', "")
}

/// Prints its name, its arguments and a variable, each with a NUL behind it.
const WORKLOAD: &str = "#!/bin/sh\nprintf '%s\\0' \"$0\" \"$@\" \"$ODD\"\nprintf '%s' \"${ODD2-unset}\" >&2\n";

/// JSON is YAML, too, and can say every text; what YAML does not take as it stands is written as an escape.
fn json(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    Value::from(text).to_string().chars().map(escaped).collect()
}

/// A campaign of one job.
fn campaign(lab: &Lab, dir: &str, argv: &[&str], more: &str) -> PathBuf {
    let argv = argv.iter().map(|word| json(&word.replace('{', "{{").replace('}', "}}"))).collect::<Vec<_>>().join(", ");
    let text = format!(
        "campaign: c\ndevices: {{ here: {{ local: {{}} }} }}\ndefaults: {{ repetitions: 1, warmup: 0, prepare: {{ settle: 0ms }} }}\nmatrix: [{{ devices: here, backend: command, argv: [{argv}]{more} }}]\n"
    );
    lab.write(&format!("{dir}/c.yaml"), text)
}

#[track_caller]
fn run(lab: &Lab, args: &[&OsStr], dir: &Path, variables: &[(&str, &OsStr)]) -> Ran {
    let mut command = lab.isotherm(&[]);
    command.args(args).current_dir(dir).envs(variables.iter().copied());
    let ran = Ran(command.output().unwrap());
    is_harmless(&["…"], &ran);
    ran
}

fn stdout(record: &Value) -> Vec<String> {
    let head = record["raw"]["stdout"]["head"]["data"].as_str().unwrap();
    head.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn a_workload_sees_exactly_the_words_of_its_campaign() {
    for_each_user(|user| {
        let lab = Lab::of(user);
        let program = format!("{} /x{}", file_name(), file_name());
        lab.write(&format!("d/{program}"), WORKLOAD);
        let program = format!("./{program}");
        let argv: Vec<&str> = [program.as_str()].into_iter().chain(WORDS).collect();
        let odd = WORDS.concat();
        campaign(&lab, "d", &argv, &format!(", env: {{ ODD: {} }}", json(&odd)));
        given(&lab, user, "d");
        let ran = lab.run(&["run", "d/c.yaml"]).expect(0);
        is_harmless(&["run"], &ran);
        let (_, record) = &lab.records("c")[0];
        let expected: Vec<&str> = argv.iter().copied().chain([odd.as_str()]).collect();
        let seen = stdout(record);
        // The kernel names a script to its interpreter by its path.
        assert!(seen[0].ends_with(&program[1..]), "{:?}", seen[0]);
        assert_eq!(seen[1..], expected[1..]);
        assert_eq!(record["backend"]["executed"]["argv"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect::<Vec<_>>(), argv);
        // Nothing changed: nothing runs again.
        let again = lab.run(&["run", "d/c.yaml"]).expect(0);
        assert!(again.stderr().contains("nothing to do"), "{}", again.stderr());
        for args in
            [&["report", "results/c"][..], &["status", "results/c"], &["verify", "results/c"], &["plan", "d/c.yaml"], &["reparse", "results/c"]]
        {
            is_harmless(args, &lab.run(args).expect(0));
        }
        nobody_was_fooled(&lab);
    });
}

/// An ordinary user may write where the campaign lies.
fn given(lab: &Lab, user: User, dir: &str) {
    if user == User::Ordinary {
        chown(lab.path(dir), Some(65534), Some(65534)).unwrap();
    }
}

#[track_caller]
fn nobody_was_fooled(lab: &Lab) {
    let fooled: Vec<_> = lab.all_files().into_iter().filter(|path| path.file_name().is_some_and(|name| name == "pwned")).collect();
    assert!(fooled.is_empty(), "a shell read it: {fooled:?}");
}

#[test]
fn axes_conditions_and_files_with_odd_words_do_not_come_apart() {
    let lab = Lab::new();
    lab.write("w.sh", WORKLOAD);
    let values: Vec<String> = WORDS.iter().map(|word| json(word)).collect();
    let text = format!(
        "campaign: c\ndevices: {{ here: {{ local: {{}} }} }}\ndefaults: {{ repetitions: 1, warmup: 0, prepare: {{ settle: 0ms }} }}\nmatrix: [{{ devices: here, backend: command, params: {{ a: [{}] }}, argv: [./w.sh, \"{{a}}\"], when: \"a != '~'\" }}]\n",
        values.join(", ")
    );
    lab.write("c.yaml", text);
    let ran = lab.run(&["run", "c.yaml"]).expect(0);
    is_harmless(&["run"], &ran);
    let mut seen: Vec<String> = lab.records("c").iter().map(|(_, record)| stdout(record)[1].clone()).collect();
    let mut expected: Vec<&str> = WORDS.iter().copied().filter(|word| *word != "~").collect();
    seen.sort();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    for args in [&["plan", "c.yaml"][..], &["run", "c.yaml", "--filter", "a=$(touch pwned)", "--fresh"], &["report", "results/c"]] {
        is_harmless(args, &lab.run(args).expect(0));
    }
    nobody_was_fooled(&lab);
}

#[test]
fn a_model_of_an_odd_name_is_found() {
    let lab = Lab::new();
    let name = file_name();
    fs::create_dir(lab.path(&name)).unwrap();
    fs::copy("configs/models/tiny-cnn.onnx", lab.path(&name).join(format!("{name}.onnx"))).unwrap();
    let text = format!(
        "campaign: c\ndevices: {{ here: {{ local: {{}} }} }}\nmodels: {{ m: {{ path: {} }} }}\ndefaults: {{ repetitions: 1, prepare: {{ settle: 0ms }} }}\nmatrix: [{{ devices: here, backend: builtin, model: m, warmup: 0, rounds: 1, iterations: 1 }}]\n",
        json(&format!("./{name}/{name}.onnx"))
    );
    lab.write("c.yaml", text);
    is_harmless(&["run"], &lab.run(&["run", "c.yaml"]).expect(0));
    assert_eq!(lab.records("c")[0].1["workload"]["model"]["path"], format!("$CAMPAIGN/{name}/{name}.onnx"));
}

#[test]
fn a_campaign_in_an_odd_directory_runs_there() {
    let lab = Lab::new();
    let dir = file_name();
    lab.write(&format!("{dir}/w.sh"), WORKLOAD);
    let file = campaign(&lab, &dir, &["./w.sh"], "");
    let results = lab.path(&format!("{dir}/res ults"));
    let args = [OsStr::new("run"), file.as_os_str(), OsStr::new("--results"), results.as_os_str()];
    let ran = run(&lab, &args, &lab.path(""), &[]).expect(0);
    can_be_pasted(&lab, &ran);
    for verb in ["report", "status", "verify", "reparse"] {
        run(&lab, &[OsStr::new(verb), results.join("c").as_os_str()], &lab.path(""), &[]).expect(0);
    }
    // Beside it, by a name that begins with a dash.
    fs::copy(&file, lab.path(&dir).join("-n.yaml")).unwrap();
    run(&lab, &["plan", "--", "-n.yaml"].map(OsStr::new), &lab.path(&dir), &[]).expect(0);
    nobody_was_fooled(&lab);
}

/// What it says to do next does so, in somebody's shell.
#[track_caller]
fn can_be_pasted(lab: &Lab, ran: &Ran) {
    let stderr = ran.stderr();
    let next = stderr.lines().find_map(|line| line.strip_prefix("next: isotherm ")).expect("something is next");
    let isotherm = lab.isotherm(&[]);
    let mut bash = Command::new("bash");
    bash.args(["-c", &format!("{} {next}", isotherm.get_program().display())]).current_dir(lab.path("")).env_clear();
    bash.envs(isotherm.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{next}: {}", String::from_utf8_lossy(&output.stderr));
}

/// No text in any encoding that we know.
fn not_utf_8(lab: &Lab) -> PathBuf {
    let dir = lab.path("").join(OsStr::from_bytes(b"x\xff\xfe y"));
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

#[test]
fn a_campaign_in_a_directory_that_is_no_text_is_refused_by_its_name() {
    let lab = Lab::new();
    let dir = not_utf_8(&lab);
    fs::copy(campaign(&lab, "c", &["/bin/true"], ""), dir.join("c.yaml")).unwrap();
    for command in ["run", "plan"] {
        let ran = run(&lab, &[OsStr::new(command), OsStr::new("c.yaml")], &dir, &[]).expect(2);
        assert!(ran.stderr().contains("is not UTF-8 text") && ran.stderr().contains("hint: move the campaign"), "{}", ran.stderr());
    }
}

#[test]
fn results_lie_in_directories_that_are_no_text() {
    let lab = Lab::new();
    lab.write("c/w.sh", WORKLOAD);
    let file = campaign(&lab, "c", &["./w.sh"], "");
    let dir = not_utf_8(&lab);
    let results = dir.join("results");
    let ran = run(&lab, &[OsStr::new("run"), file.as_os_str(), OsStr::new("--results"), results.as_os_str()], &lab.path(""), &[]).expect(0);
    can_be_pasted(&lab, &ran);
    assert!(results.join("c/.isotherm-id").is_file());
    for verb in ["report", "status", "verify", "reparse"] {
        run(&lab, &[OsStr::new(verb), results.join("c").as_os_str()], &lab.path(""), &[]).expect(0);
    }
    let copy = dir.join("copy");
    run(&lab, &[OsStr::new("export"), results.join("c").as_os_str(), OsStr::new("--public"), copy.as_os_str()], &dir, &[]).expect(0);
    run(&lab, &[OsStr::new("verify"), copy.as_os_str()], &dir, &[]).expect(0);
    // And from inside of it.
    let again = run(&lab, &[OsStr::new("run"), file.as_os_str()], &dir, &[]).expect(0);
    assert!(again.stderr().contains("1 ok"), "{}", again.stderr());
}

#[test]
fn a_home_or_a_state_directory_that_is_no_text_is_used_or_refused_by_its_name() {
    for name in ["HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "TMPDIR", "PATH", "USER"] {
        let lab = Lab::new();
        lab.write("c/w.sh", WORKLOAD.replace("${ODD2-unset}", &format!("${{{name}-unset}}")));
        let file = campaign(&lab, "c", &["./w.sh"], "");
        let dir = not_utf_8(&lab);
        let value = if name == "PATH" {
            OsStr::from_bytes(&[b"/usr/bin:/bin:", dir.as_os_str().as_bytes()].concat()).to_owned()
        } else {
            dir.clone().into_os_string()
        };
        let ran = run(&lab, &[OsStr::new("run"), file.as_os_str()], &lab.path(""), &[(name, &value)]);
        match ran.code() {
            Some(0) => {
                let (_, record) = &lab.records("c")[0];
                let seen = &record["raw"]["stderr"]["head"];
                let text = seen.to_string();
                assert!(!text.contains('\u{fffd}'), "{name} was mangled: {text}");
            }
            _ => {
                let said = ran.stderr();
                assert!(said.contains("UTF-8") && said.contains(name) && said.contains("hint:"), "{name}: {said}");
            }
        }
        eventually("nothing is left", || lab.processes().is_empty().then_some(()));
    }
}

#[test]
fn names_that_become_paths_are_refused_where_they_are_written() {
    let lab = Lab::new();
    for name in ["../x", "/x", "a b", "$(touch pwned)", "a\nb", ".x", "", "\u{1b}[2J"] {
        for text in [
            format!("campaign: {}\ndevices: {{ here: {{ local: {{}} }} }}\nmatrix: [{{ devices: here, backend: command, argv: [x] }}]\n", json(name)),
            format!("campaign: c\ndevices: {{ {0}: {{ local: {{}} }} }}\nmatrix: [{{ devices: {0}, backend: command, argv: [x] }}]\n", json(name)),
        ] {
            lab.write("c.yaml", text);
            let ran = lab.run(&["run", "c.yaml"]).expect(2);
            is_harmless(&["run", name], &ran);
            assert!(ran.stderr().contains("a name "), "{name:?}: {}", ran.stderr());
        }
    }
    assert!(!lab.path("results").exists());
    nobody_was_fooled(&lab);
}
