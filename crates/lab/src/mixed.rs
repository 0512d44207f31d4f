//! Runs with several transports in one network: groups of flows, each with a transport of its own.
//! A host has a stack for each group.
//!
//! Each group is a plan of its own, with its own flows, defaults and floors; one world executes all
//! of them, and each group has a result. A group's floors do not know the other groups: they are
//! its times alone.

mod card;
mod host;
mod packet;

use crate::board::{Board, SharedBoard};
use crate::floor::{Framing, Ways};
use crate::result::RunResult;
use crate::rival::{self, SharedRegistry, Start};
use crate::rounds::{Calls, Running};
use crate::run::{Measured, Outcome, Plan};
use crate::spec::{Spec, Transport};
use crate::workload::{FlowGroup, Flows};
use crate::{app, srd, tcp};
use card::Card;
use host::{MixedHost, Stack};
use packet::MixedPacket;
use srd_core::config::EngineConfig;
use srd_fabric::rng::stream_seed;
use srd_fabric::{HostId, Ps, US, World};
use srd_rivals::TcpConfig;
use std::path::Path;
use std::rc::Rc;

/// Stream kind of the seeds of groups.
const STREAM_GROUP: u64 = 0x9209;
/// Most groups of a case.
const GROUPS_MAX: usize = 16;

/// Checks a case with several groups; each group alone has been checked.
///
/// # Errors
/// The text names the field.
pub fn check(spec: &Spec) -> Result<(), String> {
    if spec.also.is_empty() {
        return match spec.workload.name {
            Some(_) => Err("workload.name: only groups have names, and there is no \
                            [[workload.also]]; leave it out"
                .into()),
            None => Ok(()),
        };
    }
    if spec.also.len() >= GROUPS_MAX {
        return Err(format!("workload.also: at most {} groups, please", GROUPS_MAX - 1));
    }
    let measure = &spec.measure;
    for (field, given) in [
        ("order", measure.order),
        ("phase", measure.phase),
        ("fluid", measure.fluid),
        ("trace", measure.trace),
    ] {
        if given {
            return Err(format!(
                "measure.{field}: not with [[workload.also]], as it belongs to one transport; \
                 leave it out"
            ));
        }
    }
    if groups_of(spec).any(|group| app::is_program(group.workload.pattern)) {
        return Err(
            "workload.also: a parallel program (pattern \"app\" or \"goal\") has its network \
                    alone; leave the other groups out, or give this one another pattern"
                .into(),
        );
    }
    for group in groups_of(spec) {
        let transport = match group.transport {
            Transport::Srd | Transport::Tcp | Transport::Rc | Transport::Ue => continue,
            Transport::Saa => "saa",
            Transport::Copa => "copa",
            Transport::Static => "static",
        };
        return Err(format!(
            "workload.also: transport = \"{transport}\" has its network alone; mix \"srd\", \
             \"tcp\", \"rc\" and \"ue\""
        ));
    }
    let names = names_of(spec);
    if let Some((i, name)) = names.iter().enumerate().find(|(i, n)| names[..*i].contains(n)) {
        return Err(format!(
            "workload.also.name: two groups are named \"{name}\"; name group {} otherwise",
            i + 1
        ));
    }
    Ok(())
}

fn groups_of(spec: &Spec) -> impl Iterator<Item = &Spec> {
    std::iter::once(spec).chain(&spec.also)
}

/// Names of the groups in tables: their own, or their transport's, with the group's number where
/// several groups without a name have one transport.
fn names_of(spec: &Spec) -> Vec<String> {
    let nameless = |transport: Transport| {
        groups_of(spec).filter(|g| g.workload.name.is_none() && g.transport == transport).count()
    };
    let name = |(number, group): (usize, &Spec)| {
        let transport = match group.transport {
            Transport::Srd => "SRD",
            Transport::Tcp => "TCP",
            Transport::Rc => "RC",
            Transport::Ue => "UE",
            Transport::Saa | Transport::Copa | Transport::Static => "-",
        };
        group.workload.name.clone().unwrap_or_else(|| match nameless(group.transport) {
            1 => transport.into(),
            _ => format!("{transport} {number}"),
        })
    };
    (1..).zip(groups_of(spec)).map(name).collect()
}

/// A group whose hosts are made.
struct Crew {
    framing: Framing,
    base_rtt_ps: Ps,
    packet_bytes: u32,
    stacks: Vec<Stack>,
    calls: Calls,
    setup: Setup,
}

/// What a group's results need of its settings.
enum Setup {
    Srd(Box<EngineConfig>),
    Tcp(Box<TcpConfig>),
    Rival(Box<Start>, SharedRegistry),
}

fn crew_of(plan: &Plan<'_>, board: &SharedBoard) -> Result<Crew, String> {
    match plan.spec.transport {
        Transport::Srd => {
            let (settings, base_rtt_ps) = srd::settings_of(plan.spec, &plan.topo, &plan.flows)?;
            let framing = srd::framing_of(&settings);
            let (hosts, calls) = srd::hosts_of(plan, &settings, board)?;
            Ok(Crew {
                framing,
                base_rtt_ps,
                packet_bytes: framing.full() as u32,
                stacks: hosts.into_iter().map(|h| Stack::Srd(h.into())).collect(),
                calls,
                setup: Setup::Srd(settings.engine.into()),
            })
        }
        Transport::Tcp => {
            let config = tcp::config_of(plan.spec)?;
            let framing = tcp::framing_of(&config);
            let (hosts, calls) = tcp::hosts_of(plan, &config, board)?;
            Ok(Crew {
                framing,
                base_rtt_ps: plan.base_rtt(&framing),
                packet_bytes: framing.full() as u32,
                stacks: hosts.into_iter().map(|h| Stack::Tcp(h.into())).collect(),
                calls,
                setup: Setup::Tcp(config.into()),
            })
        }
        Transport::Rc => {
            let (start, make) = rival::start_rc(plan)?;
            rival_crew(plan, start, make, board, |h| Stack::Rc(h.into()))
        }
        Transport::Ue => {
            let (start, make) = rival::start_ue(plan)?;
            rival_crew(plan, start, make, board, |h| Stack::Ue(h.into()))
        }
        Transport::Saa | Transport::Copa | Transport::Static => {
            Err("workload.also: this transport has its network alone".into())
        }
    }
}

fn rival_crew<H>(
    plan: &Plan<'_>,
    start: Start,
    make: impl Fn(HostId, u64) -> H,
    board: &SharedBoard,
    stack: impl Fn(rival::RivalHost<H>) -> Stack,
) -> Result<Crew, String> {
    let (hosts, calls, registry) = rival::hosts_of(plan, make, board)?;
    Ok(Crew {
        framing: start.framing,
        base_rtt_ps: plan.base_rtt(&start.framing),
        packet_bytes: start.packet_bytes,
        stacks: hosts.into_iter().map(stack).collect(),
        calls,
        setup: Setup::Rival(start.into(), registry),
    })
}

impl Setup {
    fn outcome(
        &self,
        world: &World<MixedPacket, MixedHost>,
        group: usize,
        plan: &Plan<'_>,
    ) -> Outcome {
        // The stacks of a group, all of one transport.
        macro_rules! stacks {
            ($name:ident) => {{
                let all = world.hosts().iter().map(|host| host.stack(group));
                all.filter_map(|s| if let Stack::$name(s) = s { Some(&**s) } else { None })
                    .collect::<Vec<_>>()
            }};
        }
        match self {
            Self::Srd(engine) => srd::outcome(&stacks!(Srd), plan, (**engine).clone()),
            Self::Tcp(config) => tcp::outcome(&stacks!(Tcp), plan, (**config).clone()),
            Self::Rival(start, registry) if plan.spec.transport == Transport::Rc => {
                rival::outcome(&stacks!(Rc), plan, start, &registry.borrow())
            }
            Self::Rival(start, registry) => {
                rival::outcome(&stacks!(Ue), plan, start, &registry.borrow())
            }
        }
    }
}

/// The groups as plans of their own: the first is `plan` itself.
///
/// # Errors
/// If the flows of a group cannot be made; the text names the field.
pub fn plans_of<'a>(plan: &Plan<'a>, folder: &Path) -> Result<Vec<Plan<'a>>, String> {
    let of = |(k, spec): (u64, &'a Spec)| {
        let seed = if k == 0 { plan.seed } else { stream_seed(plan.seed, STREAM_GROUP, k) };
        let flows = match k {
            0 => plan.flows.clone(),
            _ => spec
                .workload
                .flows(&plan.topo, folder, seed)
                .map_err(|e| format!("workload.also, group {}: {e}", k + 1))?,
        };
        if flows.flows.is_empty() {
            return Err(format!("workload.also: group {} has no flows", k + 1));
        }
        Ok(Plan {
            spec,
            seed,
            topo: plan.topo.clone(),
            flows,
            faults: plan.faults.clone(),
            rings: plan.rings.clone(),
            model: plan.model.clone().filter(|_| k == 0),
            away: None,
            recorder: plan.recorder.clone(),
        })
    };
    (0..).zip(groups_of(plan.spec)).map(of).collect()
}

/// Executes a plan with several groups. The result is the first group's, with those of the others.
///
/// # Errors
/// If a transport refuses its settings; the text names the field.
pub fn run(plan: &Plan<'_>, folder: &Path) -> Result<RunResult, String> {
    let plans = plans_of(plan, folder)?;
    let start_us = plans.iter().map(|p| p.spec.workload.start_us).min().unwrap_or(0);
    let board: SharedBoard = Rc::new(Board::default());
    let mut flows = Flows::default();
    let mut crews = Vec::new();
    for p in &plans {
        let part: SharedBoard = Rc::new(board.part(flows.flows.len() as u32));
        crews.push(crew_of(p, &part)?);
        flows.append(&p.flows);
        flows.groups.push(FlowGroup {
            flows: p.flows.flows.len(),
            endless: p.spec.workload.endless,
            wait_ps: (p.spec.workload.start_us - start_us) * US,
        });
    }
    let (world, calls) = world_of(plan, &plans, &mut crews)?;
    let mut spec = plan.spec.clone();
    spec.workload.start_us = start_us;
    let running = Running::new(&spec, &flows, world, board, calls, plan.seed);
    finish(plan, &plans, &crews, running)
}

fn world_of(
    plan: &Plan<'_>,
    plans: &[Plan<'_>],
    crews: &mut [Crew],
) -> Result<(World<MixedPacket, MixedHost>, Calls), String> {
    let packet_bytes = crews.iter().map(|c| c.packet_bytes).max().unwrap_or(0);
    let ways = Ways::new(&plan.topo);
    let mut stacks: Vec<_> =
        crews.iter_mut().map(|c| std::mem::take(&mut c.stacks).into_iter()).collect();
    let mut hosts: Vec<MixedHost> = (0..plan.topo.hosts())
        .map(|h| {
            let bits_per_s = plan.topo.port(ways.uplink(HostId(h))).bits_per_s;
            let own = stacks.iter_mut().filter_map(Iterator::next).collect();
            MixedHost::new(own, Card::new(crews.len(), bits_per_s, packet_bytes))
        })
        .collect();
    let mut calls = Calls { tokens: Vec::new(), warm: Vec::new(), background: Vec::new() };
    for (k, (p, crew)) in plans.iter().zip(crews.iter()).enumerate() {
        for (f, token) in p.flows.flows.iter().zip(&crew.calls.tokens) {
            calls.tokens.push(hosts[f.src.0 as usize].token(k, *token));
        }
        let mut whole =
            |(host, token): &(HostId, u64)| (*host, hosts[host.0 as usize].token(k, *token));
        calls.warm.extend(crew.calls.warm.iter().map(&mut whole));
        calls.background.extend(crew.calls.background.iter().map(&mut whole));
    }
    let config = plan.spec.network.world_config(plan.seed, packet_bytes);
    let mut hosts = hosts.into_iter();
    let world = World::new(plan.topo.clone(), config, |_| hosts.next().expect("one for each"));
    Ok((world.map_err(|e| format!("network: {e}"))?, calls))
}

fn finish(
    plan: &Plan<'_>,
    plans: &[Plan<'_>],
    crews: &[Crew],
    mut running: Running<'_, MixedPacket, MixedHost>,
) -> Result<RunResult, String> {
    plan.prepare(&mut running.world)?;
    let floors: Vec<_> = plans.iter().zip(crews).map(|(p, c)| p.floors(&c.framing)).collect();
    let longest = floors.iter().max_by_key(|f| f.floor_ps.iter().max());
    let mut ran = plan.ran(running, longest.map_or(&[], |f| &f.floor_ps));
    let rounds = std::mem::take(&mut ran.fct);
    let mut results = Vec::new();
    let mut first = 0;
    let names = names_of(plan.spec);
    for (k, ((p, crew), floors)) in plans.iter().zip(crews).zip(floors).enumerate() {
        let end = first + p.flows.flows.len();
        // Endless flows start once; flows of other groups run in every round.
        let own = rounds.iter().take(if p.spec.workload.endless { 1 } else { rounds.len() });
        let fct = own.map(|round| round[first..end].to_vec()).collect();
        first = end;
        let measured = Measured {
            framing: &crew.framing,
            base_rtt_ps: crew.base_rtt_ps,
            floors,
            times: (fct, Vec::new()),
            out: crew.setup.outcome(&ran.world, k, p),
        };
        let mut result = p.result(&mut ran, measured);
        let name = names[k].clone();
        result.spec.case = match p.spec.case.as_str() {
            "" => name.clone(),
            case => format!("{case}, {name}"),
        };
        result.spec.workload.name = Some(name.clone());
        result.spec.labels.push(name);
        results.push(result);
    }
    let mut main = results.remove(0);
    main.also = results;
    Ok(main)
}
