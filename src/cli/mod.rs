//! The command line: takes argv, gives calls into the library and terminal output; must not know how anything is done.

/// A line on stderr. One that can't be written, because whoever read it has gone, is no reason to end a night.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod collect;
mod doctor;
mod export;
mod init;
mod models;
mod night_view;
mod plan;
mod probe;
mod progress;
mod reference;
mod reparse;
mod results;
mod run;
mod watch;
mod words;

use crate::config::{ConfigErrors, Draft};
use crate::reference::Page;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit codes; where several apply, the one further up wins.
pub mod exit {
    /// Everything is done and ok.
    pub const OK: u8 = 0;
    /// Something failed or is pending.
    pub const NOT_ALL: u8 = 1;
    /// The command line or the campaign file is wrong.
    pub const USAGE: u8 = 2;
    /// No device could run anything: unreachable, lease held, results locked.
    pub const NO_DEVICE: u8 = 4;
    /// Isotherm could not do its own part, such as writing a record.
    pub const INTERNAL: u8 = 5;
}

/// Where results lie unless said otherwise.
const DEFAULT_RESULTS: &str = "results";

const EXIT_CODES: &str = "\
Exit codes: 0 all jobs ok · 1 something failed or is pending · 2 usage or config error · 4 no device could run anything \
(unreachable, lease held, results locked) · 5 internal error · 130/143/129 interrupted (Ctrl-C, TERM, HUP), state saved.";

/// Runs benchmark campaigns for on-device ML inference: plans a sweep, runs what is missing, leaves one sealed record per run.
#[derive(Parser)]
#[command(name = "isotherm", version, after_help = format!("\
Begin here:
  isotherm init                       writes campaign.yaml, a first campaign for this machine
  isotherm run campaign.yaml          runs what has no record yet; again to go on
  isotherm report results/campaign    makes the tables

{EXIT_CODES}"))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run what a campaign has no valid record of yet: missing, failed or changed jobs and nothing else
    #[command(after_help = format!("\
Examples:
  isotherm run configs/smoke.yaml
  isotherm run configs/smoke.yaml --filter model=tiny-cnn,threads=2 --limit 3
  isotherm run configs/smoke.yaml --rerun threads=2
  isotherm run configs/smoke.yaml --set repetitions=2 --set prepare.settle=1s
  isotherm run configs/smoke.yaml --json > events.ndjson

Ctrl-C once: no new jobs, the running one is waited for. Twice: it is left to its device, the next `run` collects it. \
A third time within 2 s: it is cancelled.

{EXIT_CODES}"))]
    Run(RunArgs),
    /// Show what a campaign expands to and how that differs from what is stored, without contacting a device
    #[command(after_help = "\
Examples:
  isotherm plan configs/smoke.yaml
  isotherm plan configs/smoke.yaml --refresh      ask the devices first
  isotherm plan configs/smoke.yaml --json | jq '.jobs[] | select(.state == \"stale\")'")]
    Plan(PlanArgs),
    /// Make the tables of a results directory, from its records alone
    #[command(after_help = "\
Examples:
  isotherm report results/smoke
  isotherm report results/smoke --format markdown > table.md
  isotherm report results/smoke --include degraded")]
    Report(ReportArgs),
    /// Show which runs of a results directory are there, failed or missing; exit code 0 only if none is
    #[command(after_help = "\
Examples:
  isotherm status results/smoke
  isotherm status results/smoke --json && echo complete")]
    Status(DirArgs),
    /// Follow a night from its journal: what every device does and did, until it is over. Ctrl-C ends the watching and nothing else
    #[command(after_help = "\
Exit code 1: no controller is at work on it any more, although its night is not over.

Examples:
  isotherm watch results/smoke
  isotherm watch results/smoke --json | jq 'select(.event == \"finished\")'")]
    Watch(DirArgs),
    /// Hash every record and sidecar of a results directory again and name what is damaged
    #[command(after_help = "\
Examples:
  isotherm verify results/smoke")]
    Verify(DirArgs),
    /// Derive metrics, status and validity again from the output that the records keep; nothing is executed
    #[command(after_help = "\
By the rules that stand in the records, as after a fix in isotherm itself; with --campaign by those of the file, for the same points. \
An earlier reading is kept in superseded/. A record whose output can't be read again stays as it is, and the exit code is 1.

Examples:
  isotherm reparse results/command --dry-run
  isotherm reparse results/command --campaign configs/command.yaml
  isotherm reparse results/command --json | jq '.changed[].path'")]
    Reparse(ReparseArgs),
    /// Make a copy of a results directory that can be given away: complete, whole, and without names of people, machines and places
    #[command(after_help = "\
Host, user, boot and machine names become pseudonyms under a key that nobody keeps; private directories become tokens; values of \
variables are kept only for those that say how a number came about (OMP_*, GGML_*, ORT_*, LC_*, PATH …). Output of the workloads is \
searched for all of this. Every record says what was replaced in it. At the end the copy is searched again: should anything be left, \
there is no copy.

Examples:
  isotherm export results/command --public /tmp/command
  isotherm export results/command --public /tmp/command --redact projectx --json")]
    Export(ExportArgs),
    /// Fetch the results that a device still has and nobody came back for, of whatever campaign
    #[command(after_help = "\
They become records in DIR/<campaign>/, complete by themselves; `run` of a campaign collects its own results without this.

Examples:
  isotherm collect --into rescued
  isotherm collect configs/smoke.yaml --device here --into rescued --keep")]
    Collect(CollectArgs),
    /// End what a campaign is running on a device, whoever started it
    #[command(after_help = "\
TERM, 5 s, KILL. What the job left is sealed on the device as cancelled; the next `run` collects it and starts the job again.

Examples:
  isotherm cancel configs/smoke.yaml
  isotherm cancel configs/smoke.yaml --device here")]
    Cancel(CancelArgs),
    /// Set back what campaigns have borrowed of a device: governor, frequency limits, swap areas
    #[command(after_help = "\
A campaign gives back by itself what it has borrowed, ten minutes after its controller died at the latest; what a machine's loss of \
power or a killed keeper left is given back by the next session. This is for who will not wait for either. With a campaign file it \
ends the keeper of a campaign whose controller is gone, unless a run is executing.

Examples:
  isotherm restore
  isotherm restore configs/pi-overnight.yaml --device pi5")]
    Restore(RestoreArgs),
    /// List the models that campaigns have copied to a device, and remove those that are named
    #[command(after_help = "\
`push: true` of a model copies it to the devices that need it, where it stays: nothing is removed but here, when you say so. A model \
that a campaign needs again is copied again.

Examples:
  isotherm models
  isotherm models configs/pi-overnight.yaml --device pi5 --json
  isotherm models configs/pi-overnight.yaml --device pi5 --evict 3f9a0c21")]
    Models(ModelsArgs),
    /// Find out what this machine, or a campaign's devices, can measure, and why they can't measure the rest
    #[command(after_help = "\
Examples:
  isotherm probe
  isotherm probe configs/smoke.yaml --device here
  isotherm probe --json | jq '.devices[].capabilities[] | select(.found.absent)'
  isotherm probe --root copy-of-a-board/        its /proc and /sys, copied

A device that a campaign holds is left alone (exit code 4) unless --force is given: a probe beside a measurement disturbs it.")]
    Probe(ProbeArgs),
    /// Look whether a campaign could begin on its devices, and what would disturb it; nothing is run, measured or changed
    #[command(after_help = "\
Files, models and programs are looked for on the device itself. Each finding that needs something done has a line to paste after an arrow.

Examples:
  isotherm doctor configs/smoke.yaml
  isotherm doctor configs/pi-overnight.yaml --device pi5
  isotherm doctor configs/smoke.yaml --json | jq '.findings[] | select(.outcome == \"problem\")'

Exit codes: 0 no problem, warnings at most · 1 a problem · 2 usage or config error, also a campaign of which this build can run nothing \
· 4 no device could be asked, or each is held by a campaign.")]
    Doctor(DoctorArgs),
    /// Write a first campaign that runs, from the models and tools found here, or on a machine that ssh reaches
    #[command(after_help = "\
Examples:
  isotherm init
  isotherm init --models ~/onnx --output nightly.yaml
  isotherm init pi@board --models /srv/models        looks on the board, over ssh
  isotherm init && isotherm plan campaign.yaml && isotherm run campaign.yaml")]
    Init(InitArgs),
    /// Print a JSON Schema
    #[command(after_help = "\
Examples:
  isotherm schema record > record.schema.json
  isotherm schema campaign > campaign.schema.json     then, in the first line of a campaign:
  # yaml-language-server: $schema=campaign.schema.json")]
    Schema {
        #[arg(value_enum)]
        of: SchemaOf,
    },
    /// Say what an issue code, a reason, a metric, a column of telemetry or a check means; all of them without a name
    #[command(after_help = "\
Examples:
  isotherm explain output_differs
  isotherm explain latency_ms
  isotherm explain --json | jq -r '.entries[] | select(.kind == \"reason\") | .name'")]
    Explain(ExplainArgs),
    /// Print a page of the documentation that is made from tables and types, as Markdown
    #[command(after_help = "\
Examples:
  isotherm reference metrics > docs/metrics.md
  isotherm reference record | less")]
    Reference {
        #[arg(value_name = "PAGE", value_parser = reference::page_parser())]
        page: Page,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum SchemaOf {
    /// The record of a run
    Record,
    /// The campaign file
    Campaign,
}

#[derive(Args)]
struct RunArgs {
    /// The campaign file
    file: PathBuf,
    /// Only jobs with these values; `threads=1,2` takes either
    #[arg(long = "filter", value_name = "AXIS=VALUE")]
    filters: Vec<String>,
    /// Only this device
    #[arg(long, value_name = "ID")]
    device: Option<String>,
    /// At most so many runs
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Work on at most N devices at once; all, unless given. Devices of one `resource_group` take turns in any case
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Run everything again; a record goes to superseded/ once there is a new valid one
    #[arg(long)]
    fresh: bool,
    /// Run these again although they have a valid record
    #[arg(long = "rerun", value_name = "AXIS=VALUE")]
    reruns: Vec<String>,
    /// Start runs although their model hardly fits into the memory that is available
    #[arg(long)]
    force: bool,
    /// Ask the devices and show what would run
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    set: SetArgs,
    #[command(flatten)]
    place: PlaceArgs,
    /// Events as NDJSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct SetArgs {
    /// Set a key of every block, such as `repetitions=2` or `prepare.settle=1s`; wins over the file
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Args)]
struct PlaceArgs {
    /// Directory that holds the results of all campaigns
    #[arg(long, value_name = "DIR", default_value = DEFAULT_RESULTS)]
    results: PathBuf,
}

#[derive(Args)]
struct PlanArgs {
    /// The campaign file
    file: PathBuf,
    /// Only jobs with these values; `threads=1,2` takes either
    #[arg(long = "filter", value_name = "AXIS=VALUE")]
    filters: Vec<String>,
    /// Ask the devices first
    #[arg(long)]
    refresh: bool,
    #[command(flatten)]
    set: SetArgs,
    #[command(flatten)]
    place: PlaceArgs,
    /// The whole plan as JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ReportArgs {
    /// Results directory of one campaign
    dir: PathBuf,
    #[arg(long, value_enum, default_value_t = Format::Terminal)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Use runs for the numbers that are left out otherwise
    #[arg(long, value_enum)]
    include: Option<Include>,
    /// Take `ceilings` of devices from this campaign file, not from the records
    #[arg(long, value_name = "FILE")]
    annotate: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Terminal,
    Markdown,
    Csv,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Include {
    /// Runs with a warning
    Degraded,
}

#[derive(Args)]
struct ProbeArgs {
    /// A campaign file: its devices instead of this machine
    file: Option<PathBuf>,
    /// Only this device
    #[arg(long, value_name = "ID", requires = "file")]
    device: Option<String>,
    /// Although a campaign holds the device
    #[arg(long)]
    force: bool,
    /// Look at the files below this directory instead of /; nothing is executed or tried out
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    root: Option<PathBuf>,
    /// Everything as JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct DoctorArgs {
    /// The campaign file
    file: PathBuf,
    /// Only this device; repeatable
    #[arg(long = "device", value_name = "ID")]
    devices: Vec<String>,
    #[command(flatten)]
    set: SetArgs,
    #[command(flatten)]
    place: PlaceArgs,
    /// All findings as JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct InitArgs {
    /// Another machine than this one, as ssh takes it
    #[arg(value_name = "USER@HOST")]
    target: Option<String>,
    /// The file to write
    #[arg(long, short, value_name = "FILE", default_value = "campaign.yaml")]
    output: PathBuf,
    /// Look for models here too; repeatable
    #[arg(long = "models", value_name = "DIR")]
    models: Vec<PathBuf>,
    /// Overwrite the file if it is there
    #[arg(long)]
    force: bool,
}

#[derive(Args)]
struct CollectArgs {
    /// A campaign that has the device; this machine without one
    file: Option<PathBuf>,
    /// Which of its devices
    #[arg(long, value_name = "ID", requires = "file")]
    device: Option<String>,
    /// Directory that gets a results directory for each campaign
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Leave them on the device as well
    #[arg(long)]
    keep: bool,
    /// What was stored and what was not, as JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct CancelArgs {
    /// The campaign file
    file: PathBuf,
    /// Which of its devices
    #[arg(long, value_name = "ID")]
    device: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Args)]
struct RestoreArgs {
    /// A campaign that has the device; this machine without one
    file: Option<PathBuf>,
    /// Which of its devices
    #[arg(long, value_name = "ID", requires = "file")]
    device: Option<String>,
    /// JSON on stdout
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Args)]
struct ModelsArgs {
    /// A campaign that has the device; this machine without one
    file: Option<PathBuf>,
    /// Which of its devices
    #[arg(long, value_name = "ID", requires = "file")]
    device: Option<String>,
    /// Remove this model, named by its sha256 or the beginning of it; repeatable
    #[arg(long, value_name = "SHA256")]
    evict: Vec<String>,
    /// Remove all of them
    #[arg(long, conflicts_with = "evict")]
    evict_all: bool,
    /// JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct DirArgs {
    /// Results directory of one campaign
    dir: PathBuf,
    /// JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ReparseArgs {
    /// Results directory of one campaign
    dir: PathBuf,
    /// Read by the rules of this campaign file
    #[arg(long, value_name = "FILE")]
    campaign: Option<PathBuf>,
    #[command(flatten)]
    set: SetArgs,
    /// Show what would change, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ExplainArgs {
    /// As in a record, a report or the output of a command
    name: Option<String>,
    /// JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ExportArgs {
    /// Results directory of one campaign
    dir: PathBuf,
    /// Where to make the public copy: a directory that isn't there yet, or is empty
    #[arg(long, value_name = "OUT")]
    public: Option<PathBuf>,
    /// Take out this text, too, wherever it stands; repeatable
    #[arg(long = "redact", value_name = "TEXT")]
    redact: Vec<String>,
    /// What was made as JSON on stdout
    #[arg(long)]
    json: bool,
}

/// Run the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    // A reader that has seen enough, as in `isotherm report … | head`, ends us quietly.
    let result = std::panic::catch_unwind(|| match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Report(args) => results::report(&args),
        Command::Status(args) => results::status(&args),
        Command::Watch(args) => watch::watch(&args),
        Command::Verify(args) => results::verify(&args),
        Command::Reparse(args) => reparse::reparse(&args),
        Command::Export(args) => export::export(&args),
        Command::Schema { of } => results::schema(of),
        Command::Explain(args) => reference::explain(&args),
        Command::Reference { page } => print(&page.markdown()),
        Command::Collect(args) => collect::collect(&args),
        Command::Cancel(args) => collect::cancel(&args),
        Command::Restore(args) => collect::restore(&args),
        Command::Models(args) => models::models(&args),
        Command::Probe(args) => probe::probe(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Init(args) => init::init(&args),
    });
    ExitCode::from(result.unwrap_or(exit::INTERNAL))
}

/// Colour on this stream? `NO_COLOR` says no.
fn color(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// `error: …` and `hint: …` on stderr.
fn complain(message: &str, hint: Option<&str>) {
    say!("error: {}", words::plain(message));
    if let Some(hint) = hint {
        say!("  hint: {}", words::plain(hint));
    }
}

/// Read a campaign of which at least some blocks can run; its errors and warnings are printed, but not that there are others.
fn runnable(file: &Path, set: &[String]) -> Result<Draft, u8> {
    let draft = draft(file, set)?;
    match &draft.later {
        Some(errors) if !draft.runs_in_part() => Err(refused(errors)),
        _ => Ok(draft),
    }
}

/// Print what is wrong with a campaign.
fn refused(errors: &ConfigErrors) -> u8 {
    say!("{}", errors.render(color(&std::io::stderr())).trim_end());
    exit::USAGE
}

/// Read a campaign that is to be planned; its errors and warnings are printed, but not what this build cannot do.
fn draft(file: &Path, set: &[String]) -> Result<Draft, u8> {
    let draft = crate::config::draft(file, set).map_err(|errors| refused(&errors))?;
    for warning in &draft.campaign.warnings {
        say!("{}", warning.trim_end());
    }
    Ok(draft)
}

/// Print to stdout; a closed pipe is no error of ours.
fn print(text: &str) -> u8 {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            complain(&format!("failed to write to stdout: {e}"), None);
            exit::INTERNAL
        }
        _ => exit::OK,
    }
}
