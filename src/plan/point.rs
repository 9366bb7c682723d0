//! One operating point: takes a combination of axis values on a device, gives what is measured there. Must not know which combinations
//! there are.

use super::expand::PlanError;
use crate::config::cpu_list;
use crate::config::model::{
    Axis, AxisValue, Backend, Block, Campaign, Ceiling, Device, DigestRule, Limits, MetricRule, Model, Settings, Success, Template, TextSource,
    Transport,
};
use crate::store::record::PointIds;
use indexmap::IndexMap;
use std::collections::HashMap;
use std::sync::Arc;

/// Where relative paths start on a device that hasn't the campaign file.
const HOME: &str = "~";

/// axis → value.
pub(super) type Combination<'a> = IndexMap<&'a str, &'a AxisValue>;

/// One operating point: what is measured, with every placeholder replaced.
#[derive(Debug, Clone)]
pub struct Point {
    /// Index of its block in the campaign.
    pub block: usize,
    pub ids: PointIds,
    /// Names of the axes that are swept, in file order.
    pub swept: Vec<String>,
    pub work: Work,
    pub model: Option<PointModel>,
    /// Environment that the campaign declares for the workload; `${secret:NAME}` stands for a secret.
    pub env: IndexMap<String, String>,
    /// CPUs that the workload may use, ascending; `None` = all that the agent may.
    pub cpus: Option<Vec<u32>>,
    /// Directory on the device that relative paths start at.
    pub base: Arc<str>,
    pub transport: &'static str,
    /// The block's, and where it says nothing the device's.
    pub limits: Limits,
    pub settings: Arc<Settings>,
    /// What the campaign declares of the surroundings, its device's and its own.
    pub conditions: IndexMap<String, String>,
    /// What the campaign says its device can do at most.
    pub ceilings: IndexMap<String, Ceiling>,
    /// Index of an earlier point that is the same, and has other kinds of run.
    pub same_as: Option<usize>,
}

/// What a backend is asked to do at a point.
#[derive(Debug, Clone)]
pub enum Work {
    Builtin {
        threads: u32,
    },
    Command(Box<CommandWork>),
    LlamaBench(Box<LlamaBenchWork>),
    LlamaServer(Box<LlamaServerWork>),
    /// Of a backend that this build knows by name: it is planned, and never run.
    Later,
}

#[derive(Debug, Clone)]
pub struct CommandWork {
    /// With the options of `flags` at its end.
    pub argv: Vec<String>,
    pub inputs: Arc<Vec<String>>,
    pub metrics: Arc<IndexMap<String, MetricRule>>,
    pub success: Arc<Success>,
}

impl CommandWork {
    /// Files that the program writes and that a rule reads.
    #[must_use]
    pub fn collected(&self) -> Vec<String> {
        let digest = self.success.output_digest.as_ref().map(|DigestRule { from, .. }| from);
        let sources = self.metrics.values().map(|rule| &rule.from).chain(digest);
        let mut files: Vec<String> = sources.filter_map(|from| if let TextSource::File(name) = from { Some(name.clone()) } else { None }).collect();
        files.sort();
        files.dedup();
        files
    }
}

/// What llama.cpp's benchmark is to measure; `None` = as the tool has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LlamaBenchWork {
    pub program: String,
    /// Tokens of the prompt.
    pub n_prompt: u32,
    /// Tokens generated.
    pub n_gen: u32,
    /// Tokens in the context before.
    pub depth: u32,
    pub threads: Option<u32>,
    pub n_batch: Option<u32>,
    pub n_ubatch: Option<u32>,
    /// Options of `flags`, with their values.
    pub flags: Vec<String>,
}

/// What llama.cpp's server is to be asked; `None` = as the tool has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LlamaServerWork {
    pub program: String,
    /// Tokens of the prompt.
    pub n_prompt: u32,
    /// Tokens generated for each request.
    pub n_gen: u32,
    /// Tokens of context, of all requests at a time together; `None` = as many as they need.
    pub n_ctx: Option<u32>,
    /// Requests at a time.
    pub concurrency: u32,
    pub threads: Option<u32>,
    pub n_batch: Option<u32>,
    pub n_ubatch: Option<u32>,
    /// Options of `flags`, with their values.
    pub flags: Vec<String>,
}

/// The model of a point, with its path on the point's device.
#[derive(Debug, Clone)]
pub struct PointModel {
    pub declared: Arc<Model>,
    /// As written; relative to the device's `models_dir`, else to the point's base. Of one that is pushed: here, relative to the campaign.
    pub path: String,
    /// `Some` = the device gets a copy.
    pub pushed: Option<Box<Texts>>,
}

/// Texts of a point that depend on where its model lies.
#[derive(Debug, Clone)]
pub struct Texts {
    /// Empty for a backend whose command line is its own.
    pub argv: Vec<String>,
    pub env: IndexMap<String, String>,
}

/// Stands in the texts of a pushed model for a path that is known once it is there. It can be part of no other text.
const SOMEWHERE: &str = "\0";

impl Texts {
    /// Is this element of the command line the model, and nothing else?
    #[must_use]
    pub fn is_model(&self, element: usize) -> bool {
        self.argv.get(element).is_some_and(|text| text == SOMEWHERE)
    }
}

/// What arms of one group have in common: block, device, and model unless models take turns, too.
pub type ArmGroup<'p> = (usize, &'p str, Option<&'p str>);

impl Point {
    /// Whose arms it takes turns with.
    #[must_use]
    pub fn group(&self) -> ArmGroup<'_> {
        let model = self.model.as_ref().map(|model| model.declared.id.as_str());
        (self.block, &self.ids.device, model.filter(|_| !self.settings.interleave.iter().any(|axis| axis == "model")))
    }

    /// Can this build run it?
    #[must_use]
    pub fn is_built(&self) -> bool {
        !matches!(self.work, Work::Later)
    }

    #[must_use]
    pub fn backend(&self) -> &str {
        &self.ids.backend
    }

    /// Texts that wait for the place of a copied model.
    #[must_use]
    pub fn pushed(&self) -> Option<&Texts> {
        self.model.as_ref()?.pushed.as_deref()
    }

    /// Command line and variables of a run, with its model at this path of the device.
    #[must_use]
    pub fn texts(&self, model_path: Option<&str>) -> Texts {
        match (self.pushed(), model_path) {
            (Some(Texts { argv, env }), Some(path)) => {
                let there = |text: &String| text.replace(SOMEWHERE, path);
                Texts { argv: argv.iter().map(there).collect(), env: env.iter().map(|(name, value)| (name.clone(), there(value))).collect() }
            }
            _ => {
                let argv = if let Work::Command(command) = &self.work { command.argv.clone() } else { Vec::new() };
                Texts { argv, env: self.env.clone() }
            }
        }
    }

    /// `model=qwen t=4`: the swept axes, for people.
    #[must_use]
    pub fn label(&self) -> String {
        let parts: Vec<String> = self.swept.iter().filter_map(|name| Some(format!("{name}={}", self.ids.axes.get(name)?))).collect();
        if parts.is_empty() { self.ids.backend.clone() } else { parts.join(" ") }
    }
}

/// Tokens generated in a run of llama.cpp's server: the time of each is kept, and more would not fit into what is kept of its output.
pub(super) const MOST_TIMED_TOKENS: u64 = 500_000;

/// Fewer tokens are no prompt: with none at all the weights are read for the first time while decode is measured.
const LEAST_PROMPT: u32 = 32;

/// Variables of llama.cpp's tools, unless the campaign says otherwise: ggml starts a debugger where it aborts, which prints into the output and
/// takes its time.
const OF_LLAMA: &[(&str, &str)] = &[("GGML_NO_BACKTRACE", "1")];

/// What of a point has placeholders, with these replaced.
struct Filled {
    texts: Texts,
    /// Options of `flags`, with their values.
    flags: Vec<String>,
    axes: IndexMap<String, AxisValue>,
}

/// Makes the points of one block.
pub(super) struct Maker<'a> {
    campaign: &'a Campaign,
    index: usize,
    block: &'a Block,
    swept: Vec<String>,
    base: Arc<str>,
    settings: Arc<Settings>,
    models: HashMap<&'a str, Arc<Model>>,
    pub(super) condition: Option<Arc<str>>,
    inputs: Arc<Vec<String>>,
    metrics: Arc<IndexMap<String, MetricRule>>,
    success: Arc<Success>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(campaign: &'a Campaign, index: usize) -> Maker<'a> {
        let block = &campaign.blocks[index];
        // A constant that an `include` gives another value tells points apart like an axis.
        let varies = |axis: &&Axis| axis.swept || block.include.iter().any(|fixed| fixed.contains_key(&axis.name));
        let (inputs, metrics, success) = match &block.backend {
            Backend::Command(command) => (command.inputs.clone(), command.metrics.clone(), command.success.clone()),
            Backend::Builtin | Backend::LlamaBench | Backend::LlamaServer | Backend::Later(_) => Default::default(),
        };
        Maker {
            campaign,
            index,
            block,
            swept: block.axes().filter(varies).map(|axis| axis.name.clone()).collect(),
            base: campaign.dir.display().to_string().into(),
            settings: Arc::new(block.settings.clone()),
            models: campaign.models.iter().map(|(id, model)| (id.as_str(), Arc::new(model.clone()))).collect(),
            condition: block.when.as_ref().map(|condition| condition.source.as_str().into()),
            inputs: Arc::new(inputs),
            metrics: Arc::new(metrics),
            success: Arc::new(success),
        }
    }

    pub(super) fn point(&self, device_id: &str, axes: &Combination<'_>) -> Result<Point, PlanError> {
        let device = &self.campaign.devices[device_id];
        let mut model = match axes.get("model") {
            Some(AxisValue::Text(id)) => Some(self.model(id, device)?),
            _ => None,
        };
        let Filled { texts: Texts { argv, env }, flags, axes: kept } = self.texts(device, model.as_ref(), axes);
        if let Some(model) = model.as_mut().filter(|model| model.declared.is_pushed_to(device_id)) {
            let somewhere = PointModel { path: SOMEWHERE.into(), ..model.clone() };
            model.pushed = Some(Box::new(self.texts(device, Some(&somewhere), axes).texts));
        }
        let work = match &self.block.backend {
            Backend::Builtin => Work::Builtin { threads: number(axes, "threads").unwrap_or(1) },
            Backend::Command(_) => Work::Command(Box::new(CommandWork {
                argv,
                inputs: Arc::clone(&self.inputs),
                metrics: Arc::clone(&self.metrics),
                success: Arc::clone(&self.success),
            })),
            Backend::LlamaBench => {
                let (n_prompt, n_gen) = (number(axes, "n_prompt").unwrap_or(0), number(axes, "n_gen").unwrap_or(0));
                if n_gen > 0 && n_prompt < LEAST_PROMPT || n_prompt == 0 && n_gen == 0 {
                    return Err(PlanError::Prompt { line: self.block.line, n_prompt, n_gen });
                }
                Work::LlamaBench(Box::new(LlamaBenchWork {
                    program: tool(device, axes, "llama_bench").unwrap_or_else(|| "llama-bench".into()),
                    n_prompt,
                    n_gen,
                    depth: number(axes, "depth").unwrap_or(0),
                    threads: number(axes, "threads"),
                    n_batch: number(axes, "n_batch"),
                    n_ubatch: number(axes, "n_ubatch"),
                    flags,
                }))
            }
            Backend::LlamaServer => {
                let (n_prompt, n_gen) = (number(axes, "n_prompt").unwrap_or(0), number(axes, "n_gen").unwrap_or(0));
                if n_prompt == 0 || n_gen == 0 {
                    return Err(PlanError::Request { line: self.block.line, n_prompt, n_gen });
                }
                let requests = u64::from(self.settings.iterations) + u64::from(self.settings.warmup);
                let tokens =
                    [requests, number(axes, "concurrency").unwrap_or(1).into()].iter().fold(n_gen.into(), |all: u64, n| all.saturating_mul(*n));
                if tokens > MOST_TIMED_TOKENS {
                    return Err(PlanError::TooManyTokens { line: self.block.line, tokens });
                }
                Work::LlamaServer(Box::new(LlamaServerWork {
                    program: tool(device, axes, "llama_server").unwrap_or_else(|| "llama-server".into()),
                    n_prompt,
                    n_gen,
                    n_ctx: number(axes, "n_ctx"),
                    concurrency: number(axes, "concurrency").unwrap_or(1),
                    threads: number(axes, "threads"),
                    n_batch: number(axes, "n_batch"),
                    n_ubatch: number(axes, "n_ubatch"),
                    flags,
                }))
            }
            Backend::Later(_) => Work::Later,
        };
        let cpus = match axes.get("cpus") {
            Some(AxisValue::Text(list)) if list != "all" => cpu_list(list).ok(),
            _ => None,
        };
        Ok(Point {
            block: self.index,
            ids: PointIds { device: device_id.to_owned(), backend: self.block.backend.name().to_owned(), axes: kept, slug: String::new() },
            swept: self.swept.clone(),
            work,
            model,
            env,
            cpus,
            base: if matches!(device.transport, Transport::Ssh(_)) { HOME.into() } else { Arc::clone(&self.base) },
            transport: device.transport.kind(),
            limits: self.settings.limits.or(device.limits),
            settings: Arc::clone(&self.settings),
            conditions: device.conditions.iter().chain(&self.settings.conditions).map(|(name, value)| (name.clone(), value.clone())).collect(),
            ceilings: device.ceilings.clone(),
            same_as: None,
        })
    }

    /// With every placeholder replaced; and the axes, likewise.
    fn texts(&self, device: &Device, model: Option<&PointModel>, axes: &Combination<'_>) -> Filled {
        let fill = |template: &Template| render(template, device, model, axes);
        let filled = |text: &str| Template::parse(text).map_or_else(|_| text.to_owned(), |template| fill(&template));
        let of_backend = if matches!(self.block.backend, Backend::LlamaBench | Backend::LlamaServer) { OF_LLAMA } else { &[] };
        let mut env: IndexMap<String, String> = of_backend.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        env.extend(device.env.iter().map(|(name, value)| (name.clone(), fill(value))));
        let mut flags = Vec::new();
        let mut kept = IndexMap::with_capacity(axes.len());
        for (&name, &value) in axes {
            // A constant variable or option is no part of the sweep; it stands in the environment or in argv.
            let varies = self.swept.iter().any(|swept| swept == name);
            if let Some(variable) = name.strip_prefix("env.") {
                let text = filled(&value.to_string());
                if varies {
                    kept.insert(name.to_owned(), AxisValue::Text(text.clone()));
                }
                env.insert(variable.to_owned(), text);
            } else if let Some(flag) = name.strip_prefix("flags.") {
                let value = match value {
                    AxisValue::List(texts) => AxisValue::List(texts.iter().map(|text| filled(text)).collect()),
                    AxisValue::Text(text) => AxisValue::Text(filled(text)),
                    other => other.clone(),
                };
                flags.extend(option(flag, &value));
                if varies {
                    kept.insert(name.to_owned(), value);
                }
            } else {
                kept.insert(name.to_owned(), value.clone());
            }
        }
        let argv = match &self.block.backend {
            Backend::Command(command) => command.argv.iter().map(fill).chain(flags.iter().cloned()).collect(),
            Backend::Builtin | Backend::LlamaBench | Backend::LlamaServer | Backend::Later(_) => Vec::new(),
        };
        Filled { texts: Texts { argv, env }, flags, axes: kept }
    }

    fn model(&self, id: &str, device: &Device) -> Result<PointModel, PlanError> {
        let declared = Arc::clone(&self.models[id]);
        let path = declared.paths.get(&device.id).or(declared.path.as_ref()).cloned();
        let path = path.ok_or_else(|| PlanError::NoModelPath { model: declared.id.clone(), device: device.id.clone() })?;
        let path = match &device.models_dir {
            Some(dir) if !path.starts_with(['/', '~']) && !declared.is_pushed_to(&device.id) => format!("{}/{path}", dir.trim_end_matches('/')),
            _ => path,
        };
        Ok(PointModel { declared, path, pushed: None })
    }
}

/// The whole number on an axis.
fn number(axes: &Combination<'_>, axis: &str) -> Option<u32> {
    if let AxisValue::Int(number) = axes.get(axis)? { u32::try_from(*number).ok() } else { None }
}

/// Path of a tool of the point's build.
fn tool(device: &Device, axes: &Combination<'_>, tool: &str) -> Option<String> {
    device.builds.get(&axes.get("build")?.to_string())?.get(tool).cloned()
}

/// An option on the command line.
fn option(flag: &str, value: &AxisValue) -> Vec<String> {
    match value {
        AxisValue::Bool(false) => Vec::new(),
        AxisValue::Bool(true) => vec![flag.to_owned()],
        AxisValue::List(texts) => texts.iter().flat_map(|text| [flag.to_owned(), text.clone()]).collect(),
        other => vec![flag.to_owned(), other.to_string()],
    }
}

/// Replace placeholders; the configuration has checked that every name is known.
fn render(template: &Template, device: &Device, model: Option<&PointModel>, axes: &Combination<'_>) -> String {
    let value = |name: &str| match (name, model) {
        ("device.id", _) => Some(device.id.clone()),
        ("model.id", Some(model)) => Some(model.declared.id.clone()),
        ("model.path", Some(model)) => Some(model.path.clone()),
        ("model.quantization", Some(model)) => model.declared.quantization.clone(),
        _ => match name.strip_prefix("build.") {
            Some(name) => tool(device, axes, name),
            None => axes.get(name).map(ToString::to_string),
        },
    };
    template.fill(value).expect("the configuration has checked every name")
}
