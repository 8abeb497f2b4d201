/** The line below the answer: its instant, and the server's other pages. */
export function Footer({ instant }: { instant?: string }) {
  return (
    <div className="asof-footer">
      {instant ? (
        <span title="Ask again with this asOf and the answer will be the same for ever">
          as of <time dateTime={instant}>{instant}</time>
        </span>
      ) : (
        <span />
      )}
      <nav aria-label="Server">
        <a href="readyz">Health</a>
        <a href="metrics">Metrics</a>
        <a href="THIRD-PARTY-LICENSES.txt">Licences</a>
      </nav>
    </div>
  );
}
