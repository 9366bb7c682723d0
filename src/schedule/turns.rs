//! Whose turn it is: so many devices at once, of each group one, whoever has waited longest first.
//!
//! The slot of a device is free → running → lost → free. One that is lost keeps its groups until its run must have ended, because the run
//! goes on without us; it takes none of the places of those that work.

use indexmap::IndexMap;
use std::collections::BTreeSet;
use std::time::Instant;

/// Devices that share one run one at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// `resource_group` of the campaign.
    Named(String),
    /// One machine, by its boot id.
    Machine(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// Since the n-th time that anybody asked.
    Waiting(u64),
    Running,
    /// Out of reach in its turn; the run may go on until then.
    Lost(Instant),
}

#[derive(Debug)]
struct Member {
    groups: BTreeSet<Group>,
    state: State,
    /// Nothing is to be done for anybody else meanwhile: it measures on the controller's own machine.
    quiet: bool,
    /// It can't be reached.
    away: bool,
    /// It has a session with its machine's keeper.
    known: bool,
    /// Nobody works on it any more, although its run may go on.
    gone: bool,
    /// It would have its turn if another campaign had not.
    outside: bool,
}

impl Member {
    /// Are its groups its own?
    fn holds(&self, now: Instant) -> bool {
        self.state == State::Running || matches!(self.state, State::Lost(until) if now < until)
    }
}

/// What a device that asks for its turn is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Yours,
    /// Ask again when something has changed, and then at the latest.
    Wait(Option<Instant>),
}

/// The devices of a night.
#[derive(Debug)]
pub struct Turns {
    most: usize,
    asked: u64,
    members: IndexMap<String, Member>,
}

impl Turns {
    /// `most`: so many devices at once.
    #[must_use]
    pub fn new(most: usize) -> Turns {
        Turns { most, asked: 0, members: IndexMap::new() }
    }

    /// Take a device in.
    pub fn enter(&mut self, device: &str, groups: impl IntoIterator<Item = Group>) {
        let member =
            Member { groups: groups.into_iter().collect(), state: State::Free, quiet: false, away: false, known: false, gone: false, outside: false };
        self.members.insert(device.to_owned(), member);
    }

    /// A device is there and says which machine it is, once more after that was started anew; who else is that one, in the order they came in.
    pub fn join(&mut self, device: &str, machine: &Group) -> Vec<String> {
        let others = |(name, member): (&String, &Member)| (name != device && member.groups.contains(machine)).then(|| name.clone());
        let others = self.members.iter().filter_map(others).collect();
        if let Some(member) = self.members.get_mut(device) {
            member.groups.retain(|group| matches!(group, Group::Named(_)));
            member.groups.insert(machine.clone());
            member.known = true;
        }
        others
    }

    /// A device has nothing to do any more. One that was lost in its turn keeps its groups as if it were still there.
    pub fn leave(&mut self, device: &str) {
        match self.members.get_mut(device) {
            Some(member) if matches!(member.state, State::Lost(_)) => (member.away, member.gone) = (true, true),
            _ => _ = self.members.shift_remove(device),
        }
    }

    /// Is it here and has something to do?
    #[must_use]
    pub fn is_in(&self, device: &str) -> bool {
        self.members.get(device).is_some_and(|member| !member.gone)
    }

    /// A device can be reached, or can't.
    pub fn set_away(&mut self, device: &str, away: bool) {
        if let Some(member) = self.members.get_mut(device) {
            member.away = away;
        }
    }

    /// Is there another device that can be reached and has something to do?
    #[must_use]
    pub fn others_are_at_work(&self, device: &str) -> bool {
        self.members.iter().any(|(name, member)| name != device && !member.away)
    }

    /// Does another device that is there and has something to do use this machine's keeper?
    #[must_use]
    pub fn is_shared(&self, device: &str, machine: &Group) -> bool {
        let uses = |member: &Member| member.known && !member.away && member.groups.contains(machine);
        self.members.iter().any(|(name, member)| name != device && uses(member))
    }

    /// A device needs this machine's keeper no more; true = nobody does, and whoever was the last one ends it.
    pub fn let_go(&mut self, device: &str, machine: &Group) -> bool {
        if let Some(member) = self.members.get_mut(device) {
            member.known = false;
        }
        !self.is_shared(device, machine)
    }

    /// Devices that somebody works on.
    #[must_use]
    pub fn count(&self) -> usize {
        self.members.values().filter(|member| !member.gone).count()
    }

    /// Names of a device's groups.
    #[must_use]
    pub fn named(&self, device: &str) -> Vec<String> {
        let groups = self.members.get(device).into_iter().flat_map(|member| &member.groups);
        groups.filter_map(|group| if let Group::Named(name) = group { Some(name.clone()) } else { None }).collect()
    }

    /// Names of the groups whose turn somebody has, or had when it was lost, or waits for outside.
    #[must_use]
    pub fn wanted(&self, now: Instant) -> BTreeSet<String> {
        let groups = self.members.values().filter(|member| member.holds(now) || member.outside).flat_map(|member| &member.groups);
        groups.filter_map(|group| if let Group::Named(name) = group { Some(name.clone()) } else { None }).collect()
    }

    /// A device wants to do something on its machine. When it is its turn, it [takes](Turns::take) it, or somebody [outside](Turns::outside)
    /// has it.
    pub fn ask(&mut self, device: &str, now: Instant) -> Turn {
        let Some(member) = self.members.get_mut(device) else { return Turn::Wait(None) };
        if member.state == State::Running {
            return Turn::Yours;
        }
        if !matches!(member.state, State::Waiting(_)) {
            self.asked += 1;
            member.state = State::Waiting(self.asked);
        }
        self.next_turn(device, now)
    }

    /// It has its turn from now on.
    pub fn take(&mut self, device: &str) {
        if let Some(member) = self.members.get_mut(device) {
            (member.state, member.outside) = (State::Running, false);
        }
    }

    /// Another campaign has the turn: it waits on, before those who came later, and takes no place meanwhile.
    pub fn outside(&mut self, device: &str) {
        if let Some(member) = self.members.get_mut(device) {
            member.outside = true;
        }
    }

    fn next_turn(&self, device: &str, now: Instant) -> Turn {
        let mut places = self.most.saturating_sub(self.members.values().filter(|member| member.state == State::Running).count());
        let holding = self.members.values().filter(|member| member.holds(now));
        let mut taken: BTreeSet<&Group> = holding.flat_map(|member| &member.groups).collect();
        let since =
            |(name, member): (&'_ String, &'_ Member)| if let State::Waiting(since) = member.state { Some((since, name.clone())) } else { None };
        let mut waiting: Vec<(u64, String)> = self.members.iter().filter_map(since).collect();
        waiting.sort_unstable();
        // Whoever waits keeps those behind it from its groups, so that it comes to its turn however many they are.
        for (_, name) in waiting {
            let member = &self.members[&name];
            let is_free = member.groups.iter().all(|group| !taken.contains(group));
            if name == device {
                let lost = self.members.values().filter_map(|member| if let State::Lost(until) = member.state { Some(until) } else { None });
                return if is_free && places > 0 { Turn::Yours } else { Turn::Wait(lost.filter(|until| *until > now).min()) };
            }
            if is_free && !member.outside {
                places = places.saturating_sub(1);
            }
            taken.extend(&member.groups);
        }
        Turn::Wait(None)
    }

    /// Its turn is over, or it doesn't wait any more. What a lost one holds is not given back by that.
    pub fn done(&mut self, device: &str) {
        if let Some(member) = self.members.get_mut(device) {
            (member.quiet, member.outside) = (false, false);
            if !matches!(member.state, State::Lost(_)) {
                member.state = State::Free;
            }
        }
    }

    /// A device that has its turn is out of reach; what it runs has ended at `until` at the latest.
    pub fn lost(&mut self, device: &str, until: Instant) {
        if let Some(member) = self.members.get_mut(device)
            && member.state == State::Running
        {
            (member.state, member.quiet) = (State::Lost(until), false);
        }
    }

    /// It is back. False = others may have had what it held: it has to ask again before it does anything.
    pub fn found(&mut self, device: &str, now: Instant) -> bool {
        let Some(member) = self.members.get_mut(device) else { return false };
        match member.state {
            State::Running => true,
            State::Lost(until) if now < until => {
                member.state = State::Running;
                true
            }
            _ => {
                member.state = State::Free;
                false
            }
        }
    }

    /// A device measures from now on, or doesn't, on the machine that this is.
    pub fn set_quiet(&mut self, device: &str, quiet: bool) {
        if let Some(member) = self.members.get_mut(device) {
            member.quiet = quiet;
        }
    }

    /// May the controller work for this device, or does another one measure beside it?
    #[must_use]
    pub fn may_work(&self, device: &str) -> bool {
        !self.members.iter().any(|(name, member)| name != device && member.quiet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn named(name: &str) -> Group {
        Group::Named(name.into())
    }

    /// As a device does that nobody outside keeps from its turn.
    fn ask(turns: &mut Turns, device: &str, now: Instant) -> Turn {
        let turn = turns.ask(device, now);
        if turn == Turn::Yours {
            turns.take(device);
        }
        turn
    }

    const WAIT: Turn = Turn::Wait(None);

    #[test]
    fn devices_of_one_group_take_turns_and_others_dont_wait_for_them() {
        let (now, mut turns) = (Instant::now(), Turns::new(9));
        turns.enter("a", [named("shelf")]);
        turns.enter("b", [named("shelf")]);
        turns.enter("c", []);
        assert_eq!([ask(&mut turns, "a", now), ask(&mut turns, "b", now), ask(&mut turns, "c", now)], [Turn::Yours, WAIT, Turn::Yours]);
        turns.done("a");
        // It wants the next one at once, and the other one has waited.
        assert_eq!([ask(&mut turns, "a", now), ask(&mut turns, "b", now)], [WAIT, Turn::Yours]);
    }

    #[test]
    fn no_more_than_so_many_at_once_and_whoever_waited_longest_is_next() {
        let (now, mut turns) = (Instant::now(), Turns::new(1));
        for device in ["a", "b", "c"] {
            turns.enter(device, []);
        }
        assert_eq!([ask(&mut turns, "b", now), ask(&mut turns, "c", now), ask(&mut turns, "a", now)], [Turn::Yours, WAIT, WAIT]);
        turns.done("b");
        assert_eq!([ask(&mut turns, "b", now), ask(&mut turns, "a", now), ask(&mut turns, "c", now)], [WAIT, WAIT, Turn::Yours]);
    }

    #[test]
    fn a_lost_device_keeps_its_group_until_its_run_has_ended_and_no_place() {
        let (now, s, mut turns) = (Instant::now(), Duration::from_secs(1), Turns::new(1));
        turns.enter("a", [named("shelf")]);
        turns.enter("b", [named("shelf")]);
        turns.enter("c", []);
        assert_eq!(ask(&mut turns, "a", now), Turn::Yours);
        turns.lost("a", now + 60 * s);
        assert_eq!(ask(&mut turns, "b", now), Turn::Wait(Some(now + 60 * s)));
        assert_eq!(ask(&mut turns, "c", now), Turn::Yours);
        turns.done("c");
        assert_eq!(ask(&mut turns, "b", now + 60 * s), Turn::Yours);
        assert!(!turns.found("a", now + 61 * s), "the other one has it now");
        assert_eq!(ask(&mut turns, "a", now + 61 * s), WAIT);
        turns.done("b");
        assert_eq!(ask(&mut turns, "a", now + 62 * s), Turn::Yours);
        turns.lost("a", now + 100 * s);
        assert!(turns.found("a", now + 70 * s));
        // Given up in the middle of its run.
        turns.lost("a", now + 100 * s);
        turns.done("a");
        turns.leave("a");
        assert_eq!(ask(&mut turns, "b", now + 71 * s), Turn::Wait(Some(now + 100 * s)));
        assert_eq!(ask(&mut turns, "b", now + 100 * s), Turn::Yours);
    }

    #[test]
    fn one_machine_that_turns_up_twice_is_one_group() {
        let (now, mut turns, machine) = (Instant::now(), Turns::new(9), Group::Machine("boot".into()));
        for device in ["a", "b"] {
            turns.enter(device, []);
        }
        assert_eq!([ask(&mut turns, "a", now), ask(&mut turns, "b", now)], [Turn::Yours, Turn::Yours]);
        assert_eq!(turns.join("a", &machine), [""; 0]);
        assert!(!turns.is_shared("a", &machine));
        assert_eq!(turns.join("b", &machine), ["a"]);
        assert!(turns.is_shared("a", &machine));
        turns.done("b");
        assert_eq!(ask(&mut turns, "b", now), WAIT);
        // The last one gives the machine back.
        assert!(!turns.let_go("a", &machine) && turns.let_go("b", &machine));
        turns.leave("a");
        assert_eq!(ask(&mut turns, "b", now), Turn::Yours);
        // It was started anew, which the other one has not seen.
        turns.join("b", &Group::Machine("next boot".into()));
        turns.enter("c", []);
        assert_eq!(turns.join("c", &Group::Machine("next boot".into())), ["b"]);
    }

    #[test]
    fn who_waits_for_another_campaign_takes_no_place_and_loses_none() {
        let (now, mut turns) = (Instant::now(), Turns::new(1));
        turns.enter("a", [named("shelf")]);
        turns.enter("b", [named("shelf")]);
        turns.enter("c", []);
        assert_eq!(turns.ask("a", now), Turn::Yours);
        turns.outside("a");
        assert_eq!((ask(&mut turns, "b", now), ask(&mut turns, "c", now)), (WAIT, Turn::Yours));
        assert_eq!(turns.wanted(now), BTreeSet::from(["shelf".to_owned()]));
        turns.done("c");
        assert_eq!((ask(&mut turns, "c", now), ask(&mut turns, "a", now)), (Turn::Yours, WAIT));
        turns.done("c");
        turns.done("b");
        assert_eq!(ask(&mut turns, "a", now), Turn::Yours);
        turns.done("a");
        assert!(turns.wanted(now).is_empty());
    }

    #[test]
    fn one_that_was_given_up_is_not_counted() {
        let (now, mut turns) = (Instant::now(), Turns::new(9));
        turns.enter("a", []);
        turns.enter("b", []);
        ask(&mut turns, "a", now);
        turns.lost("a", now + Duration::from_secs(60));
        turns.leave("a");
        assert!(turns.count() == 1 && !turns.is_in("a") && !turns.others_are_at_work("b"));
    }

    #[test]
    fn nobody_goes_on_waiting_for_others_that_are_away_too() {
        let mut turns = Turns::new(9);
        for device in ["a", "b"] {
            turns.enter(device, []);
        }
        turns.set_away("a", true);
        assert!(turns.others_are_at_work("a") && !turns.others_are_at_work("b"));
        turns.set_away("b", true);
        assert!(!turns.others_are_at_work("a"));
    }

    #[test]
    fn while_the_controllers_own_machine_measures_nothing_is_done_for_others() {
        let (now, mut turns) = (Instant::now(), Turns::new(9));
        for device in ["here", "b"] {
            turns.enter(device, []);
        }
        assert_eq!([ask(&mut turns, "here", now), ask(&mut turns, "b", now)], [Turn::Yours, Turn::Yours]);
        turns.set_quiet("here", true);
        assert!(turns.may_work("here") && !turns.may_work("b"));
        turns.done("here");
        assert!(turns.may_work("b"));
    }

    /// Choices that can be repeated.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % n
        }
    }

    /// Whatever devices do: of a group one has the turn, no more than so many do, and who waits sees each of the others at most once before it.
    #[test]
    fn whatever_happens_groups_exclude_and_nobody_starves() {
        for seed in 0..300 {
            let (mut dice, mut now) = (Dice(seed), Instant::now());
            let (devices, most) = (2 + dice.below(6), 1 + dice.below(4));
            let mut turns = Turns::new(most);
            let names: Vec<String> = (0..devices).map(|n| format!("d{n}")).collect();
            let mut groups: Vec<BTreeSet<Group>> = Vec::new();
            for name in &names {
                let of: BTreeSet<Group> = (0..dice.below(3)).map(|_| named(["x", "y", "z"][dice.below(3)])).collect();
                turns.enter(name, of.clone());
                groups.push(of);
            }
            let mut runs = vec![false; devices];
            let mut lost: Vec<Option<Instant>> = vec![None; devices];
            // Of each waiting device: how often each of the others was served since.
            let mut served: Vec<Option<Vec<u32>>> = vec![None; devices];
            for _ in 0..400 {
                now += Duration::from_secs(dice.below(20) as u64);
                let d = dice.below(devices);
                match dice.below(6) {
                    0 if runs[d] => {
                        let until = now + Duration::from_secs(dice.below(60) as u64);
                        turns.lost(&names[d], until);
                        (runs[d], lost[d]) = (false, Some(until));
                    }
                    1 if lost[d].is_some() => {
                        let until = lost[d].take();
                        runs[d] = turns.found(&names[d], now);
                        assert_eq!(runs[d], until.is_some_and(|until| now < until));
                    }
                    2 if runs[d] => {
                        turns.done(&names[d]);
                        runs[d] = false;
                    }
                    _ if !runs[d] && lost[d].is_none() => {
                        let before = runs.iter().filter(|runs| **runs).count();
                        served[d].get_or_insert_with(|| vec![0; devices]);
                        if ask(&mut turns, &names[d], now) == Turn::Yours {
                            assert!(before < most, "seed {seed}: all places were taken");
                            for other in 0..devices {
                                let holds = runs[other] || lost[other].is_some_and(|until| now < until);
                                assert!(!holds || groups[d].is_disjoint(&groups[other]), "seed {seed}: {d} and {other} share a group");
                            }
                            (runs[d], served[d]) = (true, None);
                            for (waits, counts) in served.iter_mut().enumerate() {
                                let Some(counts) = counts else { continue };
                                counts[d] += 1;
                                let shares = !groups[waits].is_disjoint(&groups[d]);
                                assert!(!shares || counts[d] <= 1, "seed {seed}: {d} was served {} times while {waits} waited", counts[d]);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}
