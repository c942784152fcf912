"""A chart of the results: a panel a row, a bar a competitor. Plain SVG, no library."""

from xml.sax.saxutils import escape, quoteattr

from results import BPKFS, FULL_SIZES, KERNEL_EROFS, NATIVE, show

WIDTH, LABELS, BAR, GAP, HEAD, MARGIN = 780, 170, 16, 6, 30, 16
VALUES = 150  # room behind the longest bar for its number
CUT = 6  # times bpkfs's own: longer bars would leave nothing of the others
COLOURS = {BPKFS: "#c2410c", NATIVE: "#6b7280", KERNEL_EROFS: "#9ca3af"}
OTHER = "#60a5fa"

PANELS = [
    ("reads", "sequential, first touch", "read a 1 GiB tensor, first touch"),
    ("reads", "sequential, hot", "the same, from the page cache"),
    ("reads", "random 4 KiB, first touch", "a random 4 KiB read, first touch"),
    ("reads", "small files, first touch", "1,000 files of 16 KiB, first touch"),
    ("names", "ls -l, first", "ls -l of 100,000 tensors"),
    ("names", "stat of all, cold", "stat of 100,000 tensors, cold"),
    ("names", "mount", "mount of 100,000 tensors"),
    ("names", "resident", "the daemon's memory then"),
    ("commit", "metadata edit, ext4", "new metadata in a 2 GiB pack, ext4"),
    ("commit", "metadata edit, xfs", "the same, XFS"),
    ("commit", "metadata edit, btrfs", "the same, btrfs"),
]


def text(x, y, content, size=12, anchor="start", weight="normal", colour="#111827"):
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
        f"fill={quoteattr(colour)}>{escape(content)}</text>"
    )


def panel(title, rows, top):
    """The lines of one panel, and where the next may begin."""
    lines = [text(MARGIN, top + 18, title, 13, weight="bold")]
    longest = max(row.high for row in rows) or 1
    own_longest = max((row.high for row in rows if row.competitor.startswith(BPKFS)), default=longest)
    longest = min(longest, CUT * own_longest) or 1
    scale = (WIDTH - 2 * MARGIN - LABELS - VALUES) / longest
    y = top + HEAD
    left = MARGIN + LABELS
    for row in sorted(rows, key=lambda row: row.median):
        colour = COLOURS.get(row.competitor, OTHER)
        own = row.competitor.startswith(BPKFS)
        weight = "bold" if own else "normal"
        middle = y + BAR / 2
        low, median, high = (min(value, longest) * scale for value in (row.low, row.median, row.high))
        value = show(row.median, row.unit) + (" → (cut)" if row.median > longest else "")
        lines.append(text(left - 8, y + 12, row.competitor, anchor="end", weight=weight))
        lines.append(
            f'<rect class="bar" x="{left}" y="{y}" width="{max(median, 1):.1f}" height="{BAR}" '
            f'fill="{COLOURS[BPKFS] if own else colour}"/>'
        )
        # From the least to the largest sample.
        lines.append(
            f'<line x1="{left + low:.1f}" y1="{middle}" x2="{left + high:.1f}" y2="{middle}" '
            f'stroke="#111827" stroke-width="1.5"/>'
        )
        lines.append(text(round(left + high + 8, 1), y + 12, value, weight=weight))
        y += BAR + GAP
    return lines, y + GAP


def draw(results, caption):
    """The whole picture. Rows that nobody measured have no panel."""
    lines, y = [], MARGIN
    full = results.sizes == FULL_SIZES  # or the titles, which name sizes, were not true
    for group, name, title in PANELS:
        rows = [row for row in results.of(group, name) if row.samples]
        if rows:
            some, y = panel(title if full else f"{group}: {name}", rows, y)
            lines += some
    legend = "Median; the line goes from the least to the largest sample. Shorter is better."
    lines.append(text(MARGIN, y + 14, legend, 11))
    for i, piece in enumerate(caption):
        lines.append(text(MARGIN, y + 30 + 15 * i, piece, 11, colour="#4b5563"))
    height = y + 30 + 15 * len(caption) + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="#ffffff"/>', *lines, "</svg>"]) + "\n"
