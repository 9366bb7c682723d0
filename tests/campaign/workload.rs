//! What a workload gets: exactly what the campaign says, and nothing of the agent's or the controller's.

use crate::kit::{Bench, text};
use crate::lab::{Lab, Ran, User, eventually, for_each_user};
use serde_json::Value;
use std::fs;

/// Run one job and give its record.
fn record(user: User, block: &str) -> (Bench, Value) {
    let bench = Bench::one_of(user, block);
    bench.run(&[]).expect(0);
    let record = bench.record();
    (bench, record)
}

#[test]
fn its_environment_is_a_few_standard_names_and_what_the_campaign_declares() {
    for user in Lab::users() {
        let (bench, record) = record(user, "argv: [env]\nenv: { OMP_NUM_THREADS: \"4\", EMPTY: \"\", SPACED: \"a  b=c\" }");
        let mut lines: Vec<&str> = text(&record["raw"]["stdout"]).lines().collect();
        lines.sort_unstable();
        let (home_path, state_path) = (bench.lab.path("home").display().to_string(), bench.lab.path("state").display().to_string());
        let home = format!("HOME={home_path}");
        let run_id = format!("ISOTHERM_RUN_ID={}", record["ids"]["run_id"].as_str().unwrap());
        let scratch = lines.iter().find(|l| l.starts_with("TMPDIR=")).unwrap().to_string();
        assert!(scratch.starts_with(&format!("TMPDIR={state_path}/isotherm/")), "{scratch}");
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let expected = ["EMPTY=", &home, &run_id, "LANG=C.UTF-8", "OMP_NUM_THREADS=4", path, "SPACED=a  b=c", &scratch, "USER=tester"];
        assert_eq!(lines, expected, "{user:?}");

        // And all of it is in the record, places that say nothing of the workload by their token.
        let recorded = record["backend"]["executed"]["env"].as_object().unwrap();
        let mut recorded: Vec<String> = recorded.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap())).collect();
        recorded.sort();
        let token = |line: &&str| match line.split_once('=').unwrap() {
            ("HOME", _) => "HOME=~".to_owned(),
            ("TMPDIR", path) => format!("TMPDIR=$STATE/scratch/{}", path.rsplit('/').next().unwrap()),
            _ => (*line).to_owned(),
        };
        assert_eq!(recorded, expected.iter().map(token).collect::<Vec<_>>(), "{user:?}");
    }
}

#[test]
fn the_campaign_can_set_what_is_standard() {
    let (_, record) = record(User::Caller, "argv: [env]\nenv: { PATH: \"/opt/none:/usr/bin:/bin\", LANG: C, HOME: /nowhere }");
    let lines: Vec<&str> = text(&record["raw"]["stdout"]).lines().collect();
    for line in ["PATH=/opt/none:/usr/bin:/bin", "LANG=C", "HOME=/nowhere"] {
        assert!(lines.contains(&line), "{line} is not in {lines:?}");
    }
}

#[test]
fn it_inherits_no_descriptor() {
    for user in Lab::users() {
        // The fourth is the directory that `ls` reads.
        let (_, record) = record(user, "argv: [ls, /proc/self/fd]");
        assert_eq!(text(&record["raw"]["stdout"]), "0\n1\n2\n3\n", "{user:?}");
    }
}

#[test]
fn it_starts_in_the_campaigns_directory_wherever_the_controller_is() {
    for user in Lab::users() {
        let bench = Bench::one_of(user, "argv: [./where.sh]");
        fs::create_dir(bench.lab.path("deep er")).unwrap();
        fs::rename(bench.lab.path("c.yaml"), bench.lab.path("deep er/c.yaml")).unwrap();
        bench.script("deep er/where.sh", "pwd -P");
        bench.lab.run(&["run", "deep er/c.yaml"]).expect(0);
        assert_eq!(text(&bench.record()["raw"]["stdout"]), format!("{}\n", bench.lab.path("deep er").display()));
    }
}

#[test]
fn its_standard_input_is_empty() {
    let (_, record) = record(User::Caller, "argv: [cat]");
    assert_eq!(record["raw"]["stdout"]["bytes"], 0);
}

#[test]
fn its_temporary_directory_is_there_and_gone_afterwards() {
    for user in Lab::users() {
        let bench = Bench::one_of(user, "argv: [./bench.sh]");
        bench.script("bench.sh", "echo x > \"$TMPDIR/file\" && echo \"$TMPDIR\"");
        bench.run(&[]).expect(0);
        let place = text(&bench.record()["raw"]["stdout"]).trim_end().to_owned();
        assert!(place.starts_with('/') && !fs::exists(&place).unwrap(), "{place}");
    }
}

#[test]
fn its_arguments_arrive_byte_for_byte() {
    let arguments = [
        "two words",
        "",
        "'single' \"double\" `back`",
        "$(touch owned) $HOME ${PATH} ; touch owned & | > owned",
        "line one\nline two\n",
        "--leading",
        "-",
        "--",
        "{not a name}",
        "{{}}",
        "*",
        "~/x",
        "\\n \\ \t end",
        "ünïcödé 😀 \u{202e}",
        "%s%d",
        "a,b=c",
    ];
    // JSON strings are YAML's double-quoted ones; braces are doubled to stand for themselves.
    let quoted: Vec<String> = arguments.iter().map(|a| serde_json::to_string(&a.replace('{', "{{").replace('}', "}}")).unwrap()).collect();
    let bench = Bench::one(&format!("argv: [./args.sh, {}]", quoted.join(", ")));
    bench.lab.write("args.sh", "#!/bin/sh\nprintf '%s\\0' \"$@\"\n");
    bench.run(&[]).expect(0);
    let record = bench.record();
    let given: String = arguments.iter().map(|a| format!("{a}\0")).collect();
    assert_eq!(text(&record["raw"]["stdout"]), given);
    let recorded: Vec<&str> = record["backend"]["executed"]["argv"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    assert_eq!(recorded[1..], arguments);
    assert!(!bench.lab.path("owned").exists(), "no shell reads a campaign's values");
}

#[test]
fn a_value_is_replaced_inside_its_element_and_never_splits_it() {
    let bench = Bench::one(
        "argv: [./args.sh, \"a{name}b\", \"{name}{name}\", \"{device.id}\"]\nparams: { name: \"x $(id) y\" }\nenv: { NAMED: \"<{name}>\" }",
    );
    bench.lab.write("args.sh", "#!/bin/sh\nprintf '[%s]' \"$@\" \"$NAMED\"\n");
    bench.run(&[]).expect(0);
    assert_eq!(text(&bench.record()["raw"]["stdout"]), "[ax $(id) yb][x $(id) yx $(id) y][here][<x $(id) y>]");
}

#[test]
fn a_program_is_looked_up_in_the_path_that_the_campaign_gives() {
    let bench = Bench::one("argv: [tool]");
    let bin = bench.lab.path("bin");
    bench.edit("c.yaml", "argv: [tool]", &format!("argv: [tool]\n    env: {{ PATH: \"{}:/usr/bin:/bin\" }}", bin.display()));
    bench.script("bin/tool", "echo from bin");
    bench.run(&[]).expect(0);
    let record = bench.record();
    assert_eq!(text(&record["raw"]["stdout"]), "from bin\n");
    let program = &record["backend"]["files"][0];
    assert_eq!((&program["role"], &program["file"]["path"]), (&"program".into(), &"$CAMPAIGN/bin/tool".into()));
}

/// Two processes that hold 32 MB each until the gate opens: `tail` keeps what it may have to print.
const HOLDS: &str = "for i in 1 2; do
  (head -c 32000000 /dev/zero; touch held.$i; while [ ! -e gate ]; do sleep 0.01; done) | tail -c 32000000 > /dev/null &
done
wait";

#[test]
fn what_its_processes_hold_together_is_its_peak_resident_set() {
    for_each_user(|user| {
        let bench = Bench::one_of(user, "argv: [./bench.sh]");
        bench.script("bench.sh", HOLDS);
        let lab = &bench.lab;
        let controller = lab.start(&["run", "c.yaml"]);
        eventually("both hold it", || (lab.path("held.1").exists() && lab.path("held.2").exists()).then_some(()));
        // Each look ends with a wait.
        let waits = || waits_of(lab, "resident");
        let before = eventually("somebody looks", waits);
        eventually("a whole look since", || waits().filter(|now| *now > before + 3));
        lab.write("gate", "");
        Ran::of(controller).expect(0);
        let record = bench.record();
        let peak = record["context"]["peak_rss"]["bytes"].as_f64().unwrap();
        assert_eq!(record["context"]["peak_rss"]["by"], "looks");
        assert!(peak > 64e6 && peak < 128e6, "{peak}");
        assert!(peak > 1.5 * record["context"]["usage"]["max_rss_bytes"].as_f64().unwrap());
        assert_eq!(record["metrics"]["peak_rss_bytes"]["value"].as_f64(), Some(peak));
    });
}

/// How often a thread of this name in a process of the lab has waited.
fn waits_of(lab: &Lab, thread: &str) -> Option<u64> {
    let tasks = lab.processes().into_iter().flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten());
    let mut statuses = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    let status = statuses.find(|status| status.lines().next() == Some(&format!("Name:\t{thread}")))?;
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
}

#[test]
fn the_peak_of_a_single_process_is_that_of_the_kernel() {
    let bench = Bench::one("argv: [\"true\"]");
    bench.run(&[]).expect(0);
    let context = bench.record()["context"].clone();
    assert_eq!(context["peak_rss"], serde_json::json!({ "bytes": context["usage"]["max_rss_bytes"], "by": "largest_process" }));
}
