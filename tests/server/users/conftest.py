from organisation import org as org
