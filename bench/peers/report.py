"""The measurements of bench/peers.py as a table in Markdown and a picture in SVG."""
import json
import os
import sys
from statistics import median

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

GIB = 1 << 30


def summary(contender, warmup):
    """Median and best tokens/s over all measured steps, each round's median, and the largest peak memory."""
    rounds = [r for r in contender["rounds"] if "error" not in r]
    if not rounds:
        return None
    per_round = [median(r["tokens_per_second"][warmup:]) for r in rounds]
    steps = [t for r in rounds for t in r["tokens_per_second"][warmup:]]
    return {"median": median(steps), "best": max(steps), "per_round": per_round, "peak_rss": max(r["peak_rss"] for r in rounds),
            "planned": rounds[0].get("planned")}


def summaries(work):
    found = {name: summary(c, work["run"]["warmup"]) for name, c in work["contenders"].items()}
    return {name: s for name, s in found.items() if s}


def ratios(work, name, found):
    """Against the fastest and the leanest peer: speed, its range over rounds, memory. Heddle's fp32 meets fp32 only, its bf16 whatever is best."""
    contenders, precision = work["contenders"], work["contenders"][name]["precision"]
    peers = {n: s for n, s in found.items() if not contenders[n]["is_heddle"] and (precision != "fp32" or contenders[n]["precision"] == "fp32")}
    if not peers:
        return None
    fastest = max(peers.values(), key=lambda s: s["median"])
    own = found[name]
    by_round = [a / b for a, b in zip(own["per_round"], fastest["per_round"])]
    return {"speed": own["median"] / fastest["median"], "lowest": min(by_round), "highest": max(by_round),
            "memory": own["peak_rss"] / min(s["peak_rss"] for s in peers.values())}


def busy_elsewhere(work):
    return [r["busy_elsewhere"] for c in work["contenders"].values() for r in c["rounds"] if "busy_elsewhere" in r]


def counted(number, noun):
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")


def markdown(document):
    m = document["machine"]
    lines = ["%s, %d threads on %d cores, %s, %.0f GiB of memory. In each round every program trains in turn." % (
                 m["cpu"], m["threads"], m["cores"], m["simd"], m["memory_bytes"] / GIB)]
    lines += ["%s: %s, %s; %s of %d steps, after %d that do not count. Meanwhile other programs used up to %.1f cores." % (
                  w["title"], w["run"]["date"], ", ".join("%s %s" % v for v in w["run"]["versions"].items()), counted(w["run"]["rounds"], "round"), w["run"]["steps"],
                  w["run"]["warmup"], max(busy_elsewhere(w), default=0)) for w in document["workloads"].values()]
    lines = ["\n".join("- " + line if i else line + "\n" for i, line in enumerate(lines)), "",
             "| work | program | precision | tokens/s, median (best) | against the fastest peer (over rounds) | peak memory, GiB | planned | against the leanest peer |",
             "|---|---|---|---|---|---|---|---|"]
    for work in document["workloads"].values():
        found = summaries(work)
        for name, c in work["contenders"].items():
            cells = [work["title"], c["label"], c["precision"]]
            if name not in found:
                lines.append("| %s | failed: %s | | | | |" % (" | ".join(cells), c["rounds"][-1]["error"].replace("|", "\\|")[:120]))
                continue
            f = found[name]
            r = ratios(work, name, found) if c["is_heddle"] else None
            cells += ["%s (%s)" % tuple("{:,.0f}".format(v) for v in (f["median"], f["best"])), "%.2fx (%.2f-%.2f)" % (r["speed"], r["lowest"], r["highest"]) if r else "",
                      "%.2f" % (f["peak_rss"] / GIB), "%.2f" % (f["planned"] / GIB) if f["planned"] else "", "%.2fx" % r["memory"] if r else ""]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


def svg(document):
    """Bars for each work: tokens/s and peak memory side by side, each as a part of the longest of its work."""
    row, bar, width, names, gap = 20, 13, 900, 250, 30
    room = (width - names - gap) / 2 - 75  # of a bar; the figure stands behind it
    parts, y = [], 56
    for work in document["workloads"].values():
        found = summaries(work)
        if not found:
            continue
        parts.append('<text x="8" y="%d" font-weight="bold">%s</text>' % (y, escaped(work["title"])))
        y += 10
        fastest, largest = max(f["median"] for f in found.values()), max(f["peak_rss"] for f in found.values())
        for name, f in found.items():
            c = work["contenders"][name]
            colour = "#2b6cb0" if c["is_heddle"] else "#a0aec0"
            parts.append('<text x="%d" y="%d" text-anchor="end">%s</text>' % (names - 8, y + bar - 2, escaped("%s, %s" % (c["label"], c["precision"]))))
            for x, part, figure in ((names, f["median"] / fastest, "{:,.0f}".format(f["median"])),
                                    (names + room + 75 + gap, f["peak_rss"] / largest, "%.2f GiB" % (f["peak_rss"] / GIB))):
                length = max(1.0, room * part)
                parts.append('<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>' % (x, y, length, bar, colour))
                parts.append('<text x="%.1f" y="%d">%s</text>' % (x + length + 5, y + bar - 2, figure))
            y += row
        y += 22
    head = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">' % (width, y),
            '<rect width="%d" height="%d" fill="#ffffff"/>' % (width, y),
            '<text x="%d" y="24">tokens/s, median (longer is better)</text>' % names,
            '<text x="%.1f" y="24">peak memory of the process (shorter is better)</text>' % (names + room + 75 + gap)]
    return "\n".join(head + parts + ["</svg>"]) + "\n"


def save(document, render, name, output):
    """The document as NAME.json and its table as NAME.md in `output`; returns the table."""
    os.makedirs(output, exist_ok=True)
    table = render(document)
    with open(os.path.join(output, name + ".json"), "w") as f:
        json.dump(document, f, indent=1)
    with open(os.path.join(output, name + ".md"), "w") as f:
        f.write(table + "\n")
    return table


def publish(table, name):
    """Puts the table between NAME.py's markers in docs/performance.md."""
    begin, end = ("<!-- bench/%s.py: %s -->" % (name, place) for place in ("begin", "end"))
    page = os.path.join(ROOT, "docs", "performance.md")
    with open(page) as f:
        before, found, rest = f.read().partition(begin)
    if not found:
        sys.exit("%s.py: docs/performance.md lacks %s" % (name, begin))
    with open(page, "w") as f:
        f.write(before + begin + "\n\n" + table + "\n\n" + end + rest.partition(end)[2])
