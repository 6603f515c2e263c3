//! Properties that hold for any sequence of writes.

use serde_json::{Value, json};

use super::Story;
use crate::patch::element;
use crate::patch::fields::{Element, FieldSet};
use crate::schema::node::{Shape, View};

/// Returns a Pod with a random selection, order and content of three containers.
fn pod(random: &mut fastrand::Rng) -> Value {
    let mut names = ["a", "b", "c"];
    random.shuffle(&mut names);
    let mut containers = Vec::new();
    for name in &names[..random.usize(1..=3)] {
        let mut container = json!({"name": name});
        if random.bool() {
            container["image"] = random.u8(0..3).to_string().into();
        }
        if random.bool() {
            container["args"] = json!([random.u8(0..3).to_string()]);
        }
        let ports: Vec<Value> = (80..83).filter(|_| random.bool()).map(|port| json!({"containerPort": port})).collect();
        if !ports.is_empty() {
            container["ports"] = ports.into();
        }
        containers.push(container);
    }
    let mut labels = serde_json::Map::new();
    for label in ["l", "m", "n"] {
        if random.bool() {
            labels.insert(label.to_owned(), random.u8(0..2).to_string().into());
        }
    }
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}});
    if !labels.is_empty() {
        pod["metadata"]["labels"] = labels.into();
    }
    pod
}

/// Returns whether every path of the set exists in the value.
fn resolves(view: View<'_>, value: &Value, set: &FieldSet) -> bool {
    set.children.iter().all(|(step, below)| {
        if let Element::Field(name) = step {
            let child = view.key(name).map_or(View::any(), |(child, _)| child);
            // An owned list that became empty is omitted, but stays owned.
            let is_empty_container =
                below.children.is_empty() && matches!(child.node.shape, Shape::Array(_) | Shape::Object(_));
            return value.get(name).map_or(is_empty_container, |value| resolves(child, value, below));
        }
        let Shape::Array(array) = &view.node.shape else { return false };
        let mut items = value.as_array().into_iter().flatten();
        let item = items.find(|item| element(&array.list, item).is_ok_and(|e| e == *step));
        item.is_some_and(|item| resolves(view.item(), item, below))
    })
}

fn without_ownership(story: &Story) -> Value {
    let mut object = story.live().clone();
    object["metadata"].as_object_mut().unwrap().remove("managedFields");
    object
}

#[test]
fn a_sole_applier_gets_exactly_what_it_applied_last() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut story = Story::of("v1", "Pod");
    for _ in 0..300 {
        let config = pod(&mut random);
        story.apply("m", &config.to_string());
        assert_eq!(without_ownership(&story), config);
        let writes = story.writes;
        story.apply("m", &config.to_string()).written(writes);
    }
}

#[test]
fn every_owned_path_exists_and_the_last_forced_value_holds_after_any_story() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut story = Story::of("v1", "Pod");
    story.apply("m0", &pod(&mut random).to_string());
    for _ in 0..600 {
        let config = pod(&mut random);
        match random.u8(0..4) {
            0 => drop(story.update("u", |live| {
                let fields = live["metadata"]["managedFields"].clone();
                *live = config.clone();
                live["metadata"]["managedFields"] = fields;
            })),
            manager => {
                let manager = format!("m{manager}");
                story.force(&manager, &config.to_string());
                let before = story.live().clone();
                story.force(&manager, &config.to_string());
                assert_eq!(story.live(), &before, "applied again by {manager}: {config}");
                for container in config["spec"]["containers"].as_array().unwrap() {
                    let live = story.live()["spec"]["containers"].as_array().unwrap();
                    let ours = live.iter().find(|c| c["name"] == container["name"]).unwrap();
                    assert!(container.get("image").is_none_or(|image| *image == ours["image"]));
                }
            }
        }
        for entry in story.live()["metadata"]["managedFields"].as_array().unwrap() {
            let set = FieldSet::decode(&entry["fieldsV1"]).unwrap();
            assert!(resolves(story.schema.view(), story.live(), &set), "{entry} in {}", story.live());
        }
    }
}
